/* Tests of cli/options.c and the table of verbs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "tests/unit/cli/suite.h"
#include "workflow/base/check.h"

static int parse(struct command *command, bool *help, const char *line)
{
	static char copy[1024];
	char *words[64] = {copy}, *place = NULL;
	int count = 1;
	snprintf(copy, sizeof copy, "reprise %s", line);
	words[0] = strtok_r(copy, " ", &place);
	while ((words[count] = strtok_r(NULL, " ", &place)) != NULL)
		count++;
	memset(command, 0, sizeof *command);
	arena_init(&command->arena);
	*help = false;
	return command_parse(command, count, words, help);
}

static void finish(struct command *command)
{
	free(command->options);
	free(command->arguments);
	arena_close(&command->arena);
}

/* The verb is found whatever options stand before it; options and arguments may be mixed. */
START_TEST(command_lines_are_understood)
{
	static const struct {
		const char *line, *verb;
		size_t arguments;
		enum output_format format;
	} rows[] = {
		{"list", "list", 0, FORMAT_TEXT},
		{"-o json list", "list", 0, FORMAT_JSON},
		{"list -ojsonl", "list", 0, FORMAT_JSONL},
		{"--output=ids --socket /x list --limit 5", "list", 0, FORMAT_IDS},
		{"submit a.yaml --wait", "submit", 1, FORMAT_TEXT},
		{"submit --wait a.yaml", "submit", 1, FORMAT_TEXT},
		{"submit --input {} a.yaml", "submit", 1, FORMAT_TEXT},
		{"submit -- -strange-name", "submit", 1, FORMAT_TEXT},
		{"submit -", "submit", 1, FORMAT_TEXT},
		{"fact list --run x", "fact list", 0, FORMAT_TEXT},
		{"-o json fact verify a b c", "fact verify", 3, FORMAT_JSON},
		{"fact -o json list", "fact list", 0, FORMAT_JSON},
		{"cancel -y a - b", "cancel", 3, FORMAT_TEXT},
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct command command;
		bool help;
		ck_assert_int_eq(parse(&command, &help, rows[i].line), STATUS_OK);
		ck_assert_str_eq(command.verb->name, rows[i].verb);
		ck_assert_uint_eq(command.argument_count, rows[i].arguments);
		ck_assert_int_eq(command.output.format, rows[i].format);
		ck_assert(!help);
		finish(&command);
	}
}
END_TEST

/* What is not understood ends with status 2. */
START_TEST(nonsense_is_usage)
{
	static const char *const lines[] = {
		"", "submt x", "fact", "fact lst", "list --limt 5", "list --limit", "list -o xml", "list --all=1", "submit", "submit a b", "show", "list --colour maybe", "list x",
		"list -z", "version extra", "list \xff",
	};
	for (size_t i = 0; i < COUNT_OF(lines); i++) {
		struct command command;
		bool help;
		ck_assert_msg(parse(&command, &help, lines[i]) == STATUS_USAGE, "%s", lines[i]);
		finish(&command);
	}
}
END_TEST

/* Help is help wherever it stands, and needs no arguments. */
START_TEST(help_is_found)
{
	static const struct {
		const char *line, *verb;
	} rows[] = {{"--help", NULL}, {"-h", NULL}, {"help", NULL}, {"submit --help", "submit"}, {"fact verify -h", "fact verify"}, {"help submit", "submit"},
		    {"help fact list", "fact list"}, {"fact --help", NULL}};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct command command;
		bool help;
		ck_assert_msg(parse(&command, &help, rows[i].line) == STATUS_OK, "%s", rows[i].line);
		ck_assert(help);
		if (rows[i].verb == NULL)
			ck_assert_ptr_null(command.verb);
		else
			ck_assert_str_eq(command.verb->name, rows[i].verb);
		finish(&command);
	}
}
END_TEST

/* Repeated options keep their order; of single ones the last counts. */
START_TEST(values_are_found)
{
	struct command command;
	bool help;
	uint64_t limit = 7;
	ck_assert_int_eq(parse(&command, &help, "submit x --label a=1 -l b=2 --id one --id two"), STATUS_OK);
	ck_assert_str_eq(command_option_at(&command, "label", 0), "a=1");
	ck_assert_str_eq(command_option_at(&command, "label", 1), "b=2");
	ck_assert_ptr_null(command_option_at(&command, "label", 2));
	ck_assert_str_eq(command_option(&command, "id"), "two");
	ck_assert(!command_flag(&command, "wait"));
	finish(&command);
	ck_assert_int_eq(parse(&command, &help, "list --limit 12"), STATUS_OK);
	ck_assert_int_eq(command_number(&command, "limit", 100, &limit), STATUS_OK);
	ck_assert_uint_eq(limit, 12);
	ck_assert_int_eq(command_number(&command, "limit", 11, &limit), STATUS_USAGE);
	finish(&command);
	static const char *const bad[] = {"list --limit -1", "list --limit 5x", "list --limit=", "list --limit 99999999999999999999999"};
	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		ck_assert_int_eq(parse(&command, &help, bad[i]), STATUS_OK);
		ck_assert_int_eq(command_number(&command, "limit", UINT64_MAX, &limit), STATUS_USAGE);
		finish(&command);
	}
}
END_TEST

/* A mistake is told in the format that was asked for, wherever that stands, even when the verb is not known. */
START_TEST(mistakes_come_in_the_format_asked_for)
{
	static const char *const lines[] = {"lst -o json", "-ojson lst", "--output=json list --limt 5", "list --limt 5 --output json", "show -o json"};
	for (size_t i = 0; i < COUNT_OF(lines); i++) {
		struct command command;
		bool help;
		ck_assert_int_eq(parse(&command, &help, lines[i]), STATUS_USAGE);
		ck_assert_msg(command.output.format == FORMAT_JSON, "%s", lines[i]);
		finish(&command);
	}
	struct command command;
	bool help;
	ck_assert_int_eq(parse(&command, &help, "lst -- -o json"), STATUS_USAGE);
	ck_assert_int_eq(command.output.format, FORMAT_TEXT);
	finish(&command);
}
END_TEST

/* No line of a help text is wider than the terminal, nor than a page; only an example, which is copied whole, may be. A group
 * shows its own verbs alone. */
START_TEST(help_fits_the_terminal)
{
	static const size_t widths[] = {60, 80, 120};
	for (size_t w = 0; w < COUNT_OF(widths); w++)
		for (size_t i = 0; i <= verb_count + 1; i++) {
			struct command command = {.verb = i < verb_count ? &verbs[i] : NULL, .group = i == verb_count ? "fact" : NULL};
			char *text = NULL, *place = NULL;
			size_t size, lines = 0;
			command.output.width = widths[w];
			FILE *file = open_memstream(&text, &size);
			print_help(&command, file);
			fclose(file);
			if (i == verb_count)
				ck_assert(strstr(text, "  fact verify") != NULL && strstr(text, "submit") == NULL);
			for (char *line = strtok_r(text, "\n", &place); line != NULL && strcmp(line, "Example:") != 0; line = strtok_r(NULL, "\n", &place), lines++)
				ck_assert_msg(text_width(bytes_text(line)) <= (widths[w] < 100 ? widths[w] : 100), "%s", line);
			ck_assert_uint_gt(lines, 4);
			free(text);
		}
}
END_TEST

/* A near miss is named, a far one is not. */
START_TEST(near_words_are_named)
{
	static const char *const words[] = {"submit", "list", "show"};
	ck_assert_str_eq(nearest_word("submt", words, 3), "submit");
	ck_assert_str_eq(nearest_word("lsit", words, 3), "list");
	ck_assert_str_eq(nearest_word("shw", words, 3), "show");
	ck_assert_str_eq(nearest_word("subimit", words, 3), "submit");
	ck_assert_str_eq(nearest_word("sbumti", words, 3), "submit"); /* two pairs that changed places */
	ck_assert_ptr_null(nearest_word("sbumt", words, 3)); /* two slips in five letters */
	ck_assert_ptr_null(nearest_word("lost!", words, 3));
	ck_assert_ptr_null(nearest_word("stow it", words, 3));
	ck_assert_ptr_null(nearest_word("s", words, 3));
	ck_assert_ptr_null(nearest_word("zzzzzz", words, 3));
	ck_assert_ptr_null(nearest_word("", words, 3));
}
END_TEST

/* Each verb has a help text with an example that itself is understood, and no verb or option stands twice. */
START_TEST(the_table_is_sound)
{
	for (size_t i = 0; i < verb_count; i++) {
		const struct verb *verb = &verbs[i];
		ck_assert_ptr_nonnull(strstr(verb->example, "reprise "));
		ck_assert_ptr_nonnull(strstr(verb->example, verb->name));
		ck_assert_ptr_nonnull(verb->run);
		for (size_t j = 0; j < i; j++)
			ck_assert_str_ne(verbs[j].name, verb->name);
		for (const struct option_rule *a = verb->options; a != NULL && a->name != NULL; a++) {
			for (const struct option_rule *b = verb->options; b != a; b++) {
				ck_assert_str_ne(a->name, b->name);
				ck_assert_msg(a->letter == 0 || a->letter != b->letter, "%s: -%c twice", verb->name, a->letter);
			}
			for (const struct option_rule *b = global_options; b->name != NULL; b++) {
				ck_assert_str_ne(a->name, b->name);
				ck_assert_msg(a->letter == 0 || a->letter != b->letter, "%s: -%c twice", verb->name, a->letter);
			}
		}
	}
}
END_TEST

RUN_SUITE("cli-options", command_lines_are_understood, nonsense_is_usage, help_is_found, values_are_found, mistakes_come_in_the_format_asked_for, help_fits_the_terminal,
	  near_words_are_named, the_table_is_sound)
