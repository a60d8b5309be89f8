/* Reading a whole file. */
#include "tests/sim/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int file_read(const char *path, struct buffer *out, struct error *error)
{
	char part[16 * 1024];
	FILE *file = fopen(path, "rb");
	size_t count;

	if (file == NULL)
		return error_set(error, ERR_IO, "open %s: %s", path, strerror(errno));
	while ((count = fread(part, 1, sizeof(part), file)) > 0)
		buffer_add(out, part, count);
	if (ferror(file))
		error_set(error, ERR_IO, "read %s: %s", path, strerror(errno));
	else if (out->overflow)
		error_set(error, ERR_TOO_LARGE, "read %s: larger than %zu bytes", path, out->max);
	fclose(file);
	return (int)error->code;
}
