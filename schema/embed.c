/* Build-time program: files in, one C file with an array for each and a header out.
 * `sql/0001_journal.sql` becomes `schema_0001_journal_sql` and `schema_0001_journal_sql_len`; the array ends with a NUL
 * that the length does not count. Included by consumers as "embedded.h" through schema_dep. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void make_name(const char *path, char *name, size_t size)
{
	const char *base = strrchr(path, '/');

	snprintf(name, size, "schema_%s", base ? base + 1 : path);
	for (char *c = name; *c; c++)
		if (!isalnum((unsigned char)*c))
			*c = '_';
}

static FILE *open_or_die(const char *path, const char *mode)
{
	FILE *file = fopen(path, mode);

	if (!file) {
		fprintf(stderr, "embed: cannot open %s\n", path);
		exit(1);
	}
	return file;
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "usage: embed OUT.c OUT.h FILE…\n");
		return 2;
	}
	FILE *source = open_or_die(argv[1], "w"), *header = open_or_die(argv[2], "w");

	fprintf(header, "/* Made by schema/embed.c. */\n#pragma once\n#include <stddef.h>\n");
	fprintf(source, "/* Made by schema/embed.c. */\n#include \"embedded.h\"\n");
	for (int i = 3; i < argc; i++) {
		char name[256];
		size_t len = 0;
		FILE *file = open_or_die(argv[i], "r");

		make_name(argv[i], name, sizeof name);
		fprintf(header, "extern const char %s[];\nextern const size_t %s_len;\n", name, name);
		fprintf(source, "const char %s[] = {", name);
		for (int c; (c = fgetc(file)) != EOF; len++)
			fprintf(source, "%s%d,", len % 24 ? "" : "\n\t", (signed char)c);
		fprintf(source, "0};\nconst size_t %s_len = %zu;\n", name, len);
		fclose(file);
	}
	return fclose(source) || fclose(header);
}
