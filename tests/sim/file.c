/* Files and their members. */
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

int members_check(const struct json *object, const char *where, const char *known, struct error *error)
{
	if (!json_is(object, JSON_OBJECT))
		return error_set(error, ERR_INVALID, "%s: must be an object", where);
	for (size_t i = 0; i < object->object.count; i++) {
		const struct json_member *member = &object->object.members[i];
		bool found = false;

		for (const char *at = known; *at != '\0' && !found; at += strcspn(at, " ") + 1)
			found = strcspn(at, " ") == member->name_len && memcmp(at, member->name, member->name_len) == 0;
		if (!found)
			return error_set(error, ERR_INVALID, "%s: \"%.60s\" is not known; known: %s", where, member->name, known);
	}
	return 0;
}
