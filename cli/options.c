/* Parsing argv against the table of verbs, and the help that the same table gives. Start at command_parse(). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "workflow/base/check.h"
#include "workflow/base/time.h"

enum {
	WORD_LEN_MAX = 64,
	WORDS_MAX = 128,
	HELP_WIDTH_MAX = 100, /* columns of a help text, however wide the terminal is */
	HELP_VERB_COLUMN = 23, /* where the summaries of verbs and the texts of options begin */
	HELP_OPTION_COLUMN = 26,
};

const struct option_rule global_options[] = {
	{"socket", 0, "PATH", "the daemon's socket ($REPRISE_SOCKET; default DATA/reprise.sock)", false},
	{"url", 0, "URL", "the daemon's address ($REPRISE_URL; token in $REPRISE_TOKEN)", false},
	{"data", 0, "DIR", "the daemon's data folder ($REPRISE_DATA)", false},
	{"output", 'o', "FORMAT", "text (the default), json, jsonl or ids", false},
	{"colour", 0, "WHEN", "auto, always or never (NO_COLOR is honoured)", false},
	{"time-format", 0, "FORM", "times in text: relative, iso or raw", false},
	{"help", 'h', NULL, "this help", false},
	{NULL, 0, NULL, NULL, false},
};

/* Edits from one word to the other; two letters that changed places are one edit. */
static size_t distance(const char *a, const char *b)
{
	size_t rows[3][WORD_LEN_MAX + 1], len_a = strlen(a), len_b = strlen(b);
	size_t *before = rows[0], *last = rows[1], *row = rows[2];
	if (len_a > WORD_LEN_MAX || len_b > WORD_LEN_MAX)
		return SIZE_MAX;
	for (size_t j = 0; j <= len_b; j++)
		row[j] = before[j] = j;
	for (size_t i = 1; i <= len_a; i++) {
		size_t *free_row = before;
		before = last;
		last = row;
		row = free_row;
		row[0] = i;
		for (size_t j = 1; j <= len_b; j++) {
			size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
			best = last[j] + 1 < best ? last[j] + 1 : best;
			best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
				best = before[j - 2] + 1;
			row[j] = best;
		}
	}
	return row[len_b];
}

const char *nearest_word(const char *typed, const char *const *words, size_t count)
{
	const char *best = NULL;
	/* One slip, or one in three letters: what is further away was another word. */
	size_t len = strlen(typed), best_distance = len < 2 ? 0 : len < 6 ? 2 : len / 3 + 1;
	for (size_t i = 0; i < count; i++) {
		size_t away = distance(typed, words[i]);
		if (away < best_distance) {
			best = words[i];
			best_distance = away;
		}
	}
	return best;
}

static const struct verb *find_verb(const char *first, const char *second, bool *two_words)
{
	for (size_t i = 0; i < verb_count; i++) {
		const char *space = strchr(verbs[i].name, ' ');
		if (space == NULL) {
			if (strcmp(verbs[i].name, first) == 0) {
				*two_words = false;
				return &verbs[i];
			}
		} else if (second != NULL && strlen(first) == (size_t)(space - verbs[i].name) &&
			   strncmp(verbs[i].name, first, strlen(first)) == 0 && strcmp(space + 1, second) == 0) {
			*two_words = true;
			return &verbs[i];
		}
	}
	return NULL;
}

static bool is_group(const char *word)
{
	for (size_t i = 0; i < verb_count; i++)
		if (strncmp(verbs[i].name, word, strlen(word)) == 0 && verbs[i].name[strlen(word)] == ' ')
			return true;
	return false;
}

static int fail_unknown_verb(struct command *command, const char *first, const char *second)
{
	const char *words[WORDS_MAX];
	size_t count = 0;
	bool group = is_group(first);
	char typed[WORD_LEN_MAX + 1];
	snprintf(typed, sizeof typed, "%s%s%s", first, group ? " " : "", group && second != NULL ? second : "");
	for (size_t i = 0; i < verb_count && count < WORDS_MAX; i++)
		if (!group || strncmp(verbs[i].name, first, strlen(first)) == 0)
			words[count++] = verbs[i].name;
	if (group && second == NULL) {
		struct buffer list;
		buffer_init(&list, 4096);
		for (size_t i = 0; i < count; i++)
			buffer_printf(&list, "%sreprise %s", i == 0 ? "" : ", ", words[i]);
		int status = command_fail(command, STATUS_USAGE, arena_printf(&command->arena, "one of: %s", buffer_text(&list)), "%s needs a second word", first);
		buffer_close(&list);
		return status;
	}
	const char *near = nearest_word(typed, words, count);
	if (near == NULL && !group && second != NULL) /* "fcat list" */
		near = nearest_word(arena_printf(&command->arena, "%s %s", first, second), words, count);
	if (near == NULL && !group) { /* "fcat": the first words of verbs that have two */
		count = 0;
		for (size_t i = 0; i < verb_count && count < WORDS_MAX; i++)
			if (strchr(verbs[i].name, ' ') != NULL)
				words[count++] = arena_text_len(&command->arena, verbs[i].name, strcspn(verbs[i].name, " "));
		near = nearest_word(first, words, count);
	}
	return command_fail(command, STATUS_USAGE,
			    near != NULL ? arena_printf(&command->arena, "did you mean: reprise %s?", near) : "reprise --help lists the verbs",
			    "unknown verb: %s", typed);
}

static const struct option_rule *find_rule(const struct option_rule *rules, const char *name, size_t len, char letter)
{
	for (; rules != NULL && rules->name != NULL; rules++)
		if (letter != 0 ? rules->letter == letter : strlen(rules->name) == len && strncmp(rules->name, name, len) == 0)
			return rules;
	return NULL;
}

static int fail_unknown_option(struct command *command, const char *typed)
{
	const char *words[WORDS_MAX];
	size_t count = 0;
	const struct option_rule *lists[] = {command->verb == NULL ? NULL : command->verb->options, global_options};
	for (size_t i = 0; i < COUNT_OF(lists); i++)
		for (const struct option_rule *rule = lists[i]; rule != NULL && rule->name != NULL && count < WORDS_MAX; rule++)
			words[count++] = rule->name;
	char name[WORD_LEN_MAX + 1];
	snprintf(name, sizeof name, "%.*s", (int)strcspn(typed + strspn(typed, "-"), "="), typed + strspn(typed, "-"));
	const char *near = nearest_word(name, words, count);
	const char *verb = command->verb == NULL ? "" : command->verb->name;
	return command_fail(command, STATUS_USAGE,
			    near != NULL ? arena_printf(&command->arena, "did you mean --%s?", near)
					 : arena_printf(&command->arena, "reprise %s%s--help lists the options", verb, *verb == '\0' ? "" : " "),
			    "unknown option: %s", typed);
}

static void add_option(struct command *command, const struct option_rule *rule, const char *value)
{
	command->options = memory_resize(command->options, (command->option_count + 1) * sizeof *command->options);
	command->options[command->option_count++] = (struct option_value){rule, value};
}

/* The verb has to be known before its options can be told apart from values, so find it first: the first words that are
 * neither an option nor a global option's value. */
static int choose_verb(struct command *command, int argc, char **argv, bool *skip)
{
	const char *words[2] = {NULL, NULL};
	int places[2] = {0, 0};
	size_t count = 0;
	for (int i = 1; i < argc && count < 2; i++) {
		if (strcmp(argv[i], "--") == 0)
			break;
		if (argv[i][0] == '-' && argv[i][1] != '\0') {
			bool is_long = argv[i][1] == '-';
			const char *name = argv[i] + 1 + is_long;
			const struct option_rule *rule = is_long ? find_rule(global_options, name, strcspn(name, "="), 0)
								 : find_rule(global_options, NULL, 0, argv[i][1]);
			if (rule != NULL && rule->value != NULL && (is_long ? strchr(name, '=') == NULL : argv[i][2] == '\0'))
				i++;
			else if (rule == NULL && count == 1)
				break; /* an option of the verb: what follows may be its value */
			continue;
		}
		words[count] = argv[i];
		places[count++] = i;
	}
	if (count == 0)
		return STATUS_OK;
	if (strcmp(words[0], "help") == 0) {
		add_option(command, find_rule(global_options, "help", 4, 0), NULL);
		skip[places[0]] = true;
		if (count == 1)
			return STATUS_OK;
		words[0] = words[1];
		places[0] = places[1];
		words[1] = places[1] + 1 < argc ? argv[places[1] + 1] : NULL;
		places[1]++;
	}
	bool two_words = false;
	command->verb = find_verb(words[0], words[1], &two_words);
	if (command->verb == NULL) {
		bool wants_help = false;
		for (int i = 1; i < argc; i++)
			wants_help |= strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0 || (skip[i] && strcmp(argv[i], "help") == 0);
		bool group_help = words[1] != NULL && strcmp(words[1], "help") == 0; /* "fact help" as "help fact" */
		if (is_group(words[0]) && (group_help || (wants_help && words[1] == NULL))) {
			add_option(command, find_rule(global_options, "help", 4, 0), NULL);
			command->group = words[0];
			skip[places[0]] = true;
			if (group_help)
				skip[places[1]] = true;
			return STATUS_OK;
		}
		return fail_unknown_verb(command, words[0], words[1]);
	}
	skip[places[0]] = true;
	if (two_words)
		skip[places[1]] = true;
	return STATUS_OK;
}

/* With its letter, where it has one: who typed -n may not know the long name. */
static const char *option_name(struct command *command, const struct option_rule *rule)
{
	return rule->letter != 0 ? arena_printf(&command->arena, "-%c (--%s)", rule->letter, rule->name) : arena_printf(&command->arena, "--%s", rule->name);
}

static int parse_options(struct command *command, int argc, char **argv, const bool *skip)
{
	bool only_arguments = false;
	const struct option_rule *own = command->verb == NULL ? NULL : command->verb->options;
	for (int i = 1; i < argc; i++) {
		char *word = argv[i];
		if (skip[i])
			continue;
		if (only_arguments || word[0] != '-' || word[1] == '\0') {
			command->arguments = memory_resize(command->arguments, (command->argument_count + 1) * sizeof *command->arguments);
			command->arguments[command->argument_count++] = word;
			continue;
		}
		if (strcmp(word, "--") == 0) {
			only_arguments = true;
			continue;
		}
		bool is_long = word[1] == '-';
		const char *name = word + 2, *value = NULL;
		size_t len = is_long ? strcspn(name, "=") : 0;
		char letter = is_long ? 0 : word[1];
		const struct option_rule *rule = find_rule(own, name, len, letter);
		if (rule == NULL)
			rule = find_rule(global_options, name, len, letter);
		if (rule == NULL && is_long && strncmp(name, "color", len) == 0 && len == 5)
			rule = find_rule(global_options, "colour", 6, 0);
		if (rule == NULL)
			return fail_unknown_option(command, word);
		if (is_long)
			value = name[len] == '=' ? name + len + 1 : NULL;
		else
			value = word[2] != '\0' ? word + 2 : NULL;
		if (rule->value == NULL && value != NULL)
			return command_fail(command, STATUS_USAGE, NULL, "option --%s takes no value", rule->name);
		if (rule->value != NULL && value == NULL) {
			if (i + 1 >= argc || skip[i + 1])
				return command_fail(command, STATUS_USAGE, rule->help, "option %s needs a value: %s", option_name(command, rule), rule->value);
			value = argv[++i];
		}
		add_option(command, rule, value);
	}
	return STATUS_OK;
}

static int choose_word(struct command *command, const char *name, const char *const *words, size_t count, size_t *chosen)
{
	const char *value = command_option(command, name);
	if (value == NULL)
		return STATUS_OK;
	for (size_t i = 0; i < count; i++)
		if (strcmp(words[i], value) == 0) {
			*chosen = i;
			return STATUS_OK;
		}
	struct buffer list;
	buffer_init(&list, 1024);
	for (size_t i = 0; i < count; i++)
		buffer_printf(&list, "%s%s", i == 0 ? "" : ", ", words[i]);
	int status = command_fail(command, STATUS_USAGE, arena_printf(&command->arena, "one of: %s", buffer_text(&list)), "--%s %s is unknown", name, value);
	buffer_close(&list);
	return status;
}

static const char *const formats[] = {"text", "json", "jsonl", "ids"};

/* The format that is asked for anywhere, for mistakes that are told before all options are read. */
static enum output_format find_format(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		const char *value = NULL;
		if (strcmp(argv[i], "-o") == 0 || strcmp(argv[i], "--output") == 0)
			value = i + 1 < argc ? argv[i + 1] : NULL;
		else if (strncmp(argv[i], "-o", 2) == 0)
			value = argv[i] + 2;
		else if (strncmp(argv[i], "--output=", 9) == 0)
			value = argv[i] + 9;
		for (size_t f = 0; value != NULL && f < COUNT_OF(formats); f++)
			if (strcmp(value, formats[f]) == 0)
				return (enum output_format)f;
	}
	return FORMAT_TEXT;
}

int command_parse(struct command *command, int argc, char **argv, bool *help)
{
	static const char *const colours[] = {"auto", "always", "never"};
	static const char *const times[] = {"relative", "iso", "raw"};
	size_t format = 0, colour = 0, time_format = 0;
	bool *skip = memory_zero((size_t)argc + 1);

	output_init(&command->output, find_format(argc, argv), "auto");
	int status = STATUS_OK;
	/* Words go into JSON and messages, which are UTF-8. */
	for (int i = 1; i < argc && status == STATUS_OK; i++)
		if (!utf8_valid(bytes_text(argv[i]), NULL))
			status = command_fail(command, STATUS_USAGE, "name the file by another way: @/dev/stdin, or a link", "word %d of the command line is not UTF-8: %s", i, argv[i]);
	if (status == STATUS_OK)
		status = choose_verb(command, argc, argv, skip);
	if (status == STATUS_OK)
		status = parse_options(command, argc, argv, skip);
	free(skip);
	if (status != STATUS_OK)
		return status;
	if ((status = choose_word(command, "output", formats, COUNT_OF(formats), &format)) != STATUS_OK ||
	    (status = choose_word(command, "colour", colours, COUNT_OF(colours), &colour)) != STATUS_OK ||
	    (status = choose_word(command, "time-format", times, COUNT_OF(times), &time_format)) != STATUS_OK)
		return status;
	output_init(&command->output, (enum output_format)format, colours[colour]);
	command->output.time_format = (enum time_format)time_format;
	command->client_options = (struct client_options){command_option(command, "socket"), command_option(command, "url"), command_option(command, "data")};

	*help = command_flag(command, "help");
	if (*help)
		return STATUS_OK;
	if (command->verb == NULL)
		return command_fail(command, STATUS_USAGE, "reprise --help lists the verbs", "no verb given");
	const struct verb *verb = command->verb;
	const char *usage = arena_printf(&command->arena, "usage: reprise %s%s%s", verb->name, verb->arguments[0] == '\0' ? "" : " ", verb->arguments);
	if (command->argument_count < verb->arguments_min)
		return command_fail(command, STATUS_USAGE, usage, "%s: an argument is missing", verb->name);
	if (command->argument_count > verb->arguments_max)
		return command_fail(command, STATUS_USAGE, usage, "%s: one argument too many: %s", verb->name, command->arguments[verb->arguments_max]);
	if (command->argument_count == 1 && (strcmp(verb->arguments, "RUN") == 0 || strcmp(verb->arguments, "[RUN]") == 0))
		return command_check_run_id(command, command->arguments[0]);
	/* As in `reprise runtime stop "$NAME"`, where a path without the name would mean something else. */
	for (size_t i = 0; i < command->argument_count; i++)
		if (command->arguments[i][0] == '\0')
			return command_fail(command, STATUS_USAGE, usage, "%s: argument %zu is empty", verb->name, i + 1);
	return STATUS_OK;
}

bool command_flag(const struct command *command, const char *name)
{
	for (size_t i = 0; i < command->option_count; i++)
		if (strcmp(command->options[i].rule->name, name) == 0)
			return true;
	return false;
}

const char *command_option(const struct command *command, const char *name)
{
	for (size_t i = command->option_count; i-- > 0;)
		if (strcmp(command->options[i].rule->name, name) == 0)
			return command->options[i].value;
	return NULL;
}

const char *command_option_at(const struct command *command, const char *name, size_t index)
{
	for (size_t i = 0; i < command->option_count; i++)
		if (strcmp(command->options[i].rule->name, name) == 0 && index-- == 0)
			return command->options[i].value;
	return NULL;
}

static int fail_number(struct command *command, const char *name, const char *text, uint64_t min, uint64_t max)
{
	const struct option_rule *rule = find_rule(command->verb->options, name, strlen(name), 0);

	CHECK(rule); /* the verb asks for what it has */
	return command_fail(command, STATUS_USAGE, rule->help, "%s %s: a whole number from %llu to %llu is meant", option_name(command, rule), text, (unsigned long long)min, (unsigned long long)max);
}

int command_number(struct command *command, const char *name, uint64_t max, uint64_t *value)
{
	return command_number_from(command, name, 0, max, value);
}

int command_number_from(struct command *command, const char *name, uint64_t min, uint64_t max, uint64_t *value)
{
	const char *text = command_option(command, name);
	if (text == NULL)
		return STATUS_OK;
	char *end;
	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || number < min || number > max)
		return fail_number(command, name, text, min, max);
	*value = number;
	return STATUS_OK;
}

int command_duration(struct command *command, const char *name, int64_t *ms)
{
	const char *text = command_option(command, name);
	struct error error;
	if (text == NULL)
		return STATUS_OK;
	if (duration_parse(text, ms, &error) != 0)
		return command_fail(command, STATUS_USAGE, "examples: 250ms, 30s, 5m, PT1H", "--%s %s: %s", name, text, error.message);
	return STATUS_OK;
}

int command_read_wait(struct command *command, int64_t *timeout_ms)
{
	*timeout_ms = -1;
	if (!command_flag(command, "wait") && command_option(command, "timeout") != NULL)
		return command_fail(command, STATUS_USAGE, NULL, "--timeout goes with --wait: it limits the waiting alone");
	return command_duration(command, "timeout", timeout_ms);
}

/* ---- Help ---- */

/* Words up to `width`; the cursor stands at `column`, further lines begin at `indent`. A newline in the text stays one. */
static void print_wrapped(FILE *file, size_t column, size_t indent, size_t width, const char *text)
{
	bool first = true;
	while (*text != '\0') {
		size_t len = strcspn(text, " \n"), columns = text_width((struct bytes){(const uint8_t *)text, len});
		if (!first && column + 1 + columns > width) {
			fprintf(file, "\n%*s", (int)indent, "");
			column = indent;
		} else if (!first) {
			fputc(' ', file);
			column++;
		}
		fwrite(text, 1, len, file);
		column += columns;
		text += len;
		first = *text == '\n';
		if (first) {
			fprintf(file, "\n%*s", (int)indent, "");
			column = indent;
		}
		text += *text != '\0';
	}
	fputc('\n', file);
}

/* What stands on the left of a line, and the text beside it from `column` on; below it, if the left reaches that far. */
static void print_row(FILE *file, const char *left, size_t column, size_t width, const char *text)
{
	size_t used = 2 + text_width(bytes_text(left));
	fprintf(file, "  %s%s%*s", left, used < column ? "" : "\n", (int)(used < column ? column - used : column), "");
	print_wrapped(file, column, column, width, text);
}

static void print_options(const struct option_rule *rules, size_t width, FILE *file)
{
	for (; rules != NULL && rules->name != NULL; rules++) {
		char left[96];
		snprintf(left, sizeof left, "%c%c%s --%s%s%s%s", rules->letter ? '-' : ' ', rules->letter ? rules->letter : ' ', rules->letter ? "," : " ",
			 rules->name, rules->value ? " " : "", rules->value ? rules->value : "", rules->repeated ? "…" : "");
		print_row(file, left, HELP_OPTION_COLUMN, width, rules->help);
	}
}

static void print_verbs(const char *group, size_t width, FILE *file)
{
	/* The verb that a heading stands before. */
	static const struct {
		const char *verb, *title;
	} headings[] = {
		{"submit", "Runs"}, {"replay", "Proof and cost of runs"}, {"extract", "Documents and facts"}, {"journal verify", "Journal and keys"},
		{"definition add", "Definitions, events and schedules"}, {"runtime list", "Runtimes"}, {"config show", "Operating"},
	};
	for (size_t i = 0; i < verb_count; i++) {
		if (group != NULL && (strncmp(verbs[i].name, group, strlen(group)) != 0 || verbs[i].name[strlen(group)] != ' '))
			continue;
		for (size_t h = 0; group == NULL && h < COUNT_OF(headings); h++)
			if (strcmp(headings[h].verb, verbs[i].name) == 0)
				fprintf(file, "\n%s:\n", headings[h].title);
		print_row(file, verbs[i].name, HELP_VERB_COLUMN, width, verbs[i].summary);
	}
}

static void print_verb_help(const struct verb *verb, size_t width, FILE *file)
{
	fprintf(file, "reprise %s%s%s\n  ", verb->name, verb->arguments[0] == '\0' ? "" : " ", verb->arguments);
	print_wrapped(file, 2, 2, width, verb->summary);
	if (verb->details != NULL) {
		fputc('\n', file);
		print_wrapped(file, 0, 0, width, verb->details);
	}
	if (verb->options != NULL) {
		fputs("\nOptions:\n", file);
		print_options(verb->options, width, file);
	}
}

void print_help(const struct command *command, FILE *file)
{
	size_t width = command->output.width < HELP_WIDTH_MAX ? command->output.width : HELP_WIDTH_MAX;
	if (command->verb != NULL) {
		print_verb_help(command->verb, width, file);
	} else if (command->group != NULL) {
		fprintf(file, "reprise %s VERB\n\n", command->group);
		print_verbs(command->group, width, file);
		fprintf(file, "\nreprise %s VERB --help says more.\n", command->group);
		return;
	} else {
		print_wrapped(file, 0, 0, width, "reprise VERB …: the command line of Reprise, the durable workflow daemon for reproducible inference and extraction.");
		print_verbs(NULL, width, file);
	}
	fputs("\nOptions of all verbs:\n", file);
	print_options(global_options, width, file);
	if (command->verb != NULL) {
		fprintf(file, "\nExample:\n  %s\n", command->verb->example);
		return;
	}
	fputs("\nExit status:\n", file);
	print_row(file, "0", 9, width, "ok");
	print_row(file, "1-7", 9, width, "1 error, 2 usage, 3 not authorised, 4 not found, 5 conflict, 6 daemon unreachable, 7 wait timed out");
	print_row(file, "10-13", 9, width, "the run's outcome, with --wait or --exit-status: 10 faulted, 11 cancelled, 12 killed, 13 timed out");
	print_row(file, "20-26", 9, width, "proofs: 20 replay differs, 22 signature invalid, 23 journal damaged, 25 malformed evidence, 26 unverifiable");
	print_row(file, "130", 9, width, "interrupted");
	fputs("\nExample:\n  reprise extract notes.md --runtime extractor\n\nreprise VERB --help says more, with an example each.\n", file);
}
