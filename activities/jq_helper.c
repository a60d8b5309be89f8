/* reprise-jq: evaluates expressions that need jq, for the daemon and the command line. A 21-byte expression can kill the process that
 * evaluates it, or never end, so it is a process of its own: whoever started it kills it at a deadline and starts another one.
 *
 * Frames come and go on descriptor 0, a socket (workflow/language/evaluation.h says which). Before the first one is read, everything that
 * an expression could reach is taken away: environment, working folder, files, other descriptors, memory past 512 MiB, and all
 * system calls but those that memory, time and this one socket need.
 *
 * One thread. New here? Read main(), then evaluate(). */
#include <errno.h>
#include <fcntl.h>
#include <jq.h>
#include <jv.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "workflow/language/evaluation.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

enum {
	PROGRAMS_MAX = 256, /* compiled ones that are kept; the least recently used goes */
	MEMORY_MAX = 512 << 20,
	CPU_SECONDS_MAX = 120, /* the pool retires a helper at half of that */
	DESCRIPTORS_MAX = 3,
	COMPILE_ROUNDS_MAX = 16, /* of one batch: each names at least one more bad expression */
	MESSAGE_LEN_MAX = 300,
	LINES_MAX = EVALUATION_EXPRESSION_MAX + 1,
};

#if SANITIZED
/* The sanitizers' shadow memory is far larger than any RLIMIT_AS, so there the runtime itself bounds what is really used. It goes by the
 * most that was ever used, and the kernel counts in what the process that started this one had before exec: that much comes on top. So
 * early neither a library may be called nor instrumented code run. */
const char *__asan_default_options(void);
__attribute__((no_sanitize("address", "undefined"), no_stack_protector)) const char *__asan_default_options(void)
{
	static char options[] = "hard_rss_limit_mb=00000000:allocator_may_return_null=1:max_allocation_size_mb=512:detect_leaks=0:abort_on_error=0";
	static struct rusage used;

	syscall(SYS_getrusage, RUSAGE_SELF, &used);
	long limit_mb = (MEMORY_MAX >> 20) + used.ru_maxrss / 1024;
	for (size_t at = sizeof "hard_rss_limit_mb=00000000" - 2; options[at] == '0'; at--, limit_mb /= 10)
		options[at] = (char)('0' + limit_mb % 10);
	return options;
}
#endif

/* What an expression may not have. It stands before the expression, so `include` and `import` are syntax errors in it; `{} as $ENV` hides
 * the environment (there is none as well). Time is given as $task.startedAt, which replay can repeat; `now` could not. */
static const char guards[] =
	"{} as $ENV | {} as $__prog_args | "
	"def env: {}; def now: error(\"now is not available: use $task.startedAt\"); def input: error(\"input is not available\"); "
	"def inputs: input; def input_filename: null; def input_line_number: 0; def debug: .; def debug(f): .; def stderr: .; "
	"def halt: error(\"halt is not available\"); def halt_error: halt; def halt_error(f): halt; "
	"def localtime: gmtime; def strflocaltime(f): strftime(f); "
	"def modulemeta: error(\"modulemeta is not available\"); def get_search_list: []; ";

/* ---- The sandbox */

static void take_away_all(void)
{
	static const struct {
		int resource;
		rlim_t value;
	} limits[] = {{RLIMIT_CORE, 0}, {RLIMIT_CPU, CPU_SECONDS_MAX}, {RLIMIT_NOFILE, DESCRIPTORS_MAX}, {RLIMIT_FSIZE, 0}};

	clearenv();
	setenv("TZ", "UTC", 1);
	tzset();
	if (chdir("/") != 0 || close_range(DESCRIPTORS_MAX, ~0U, 0) != 0)
		_exit(1);
	for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
		if (setrlimit(limits[i].resource, &(struct rlimit){limits[i].value, limits[i].value}) != 0)
			_exit(1);
	if (!SANITIZED && setrlimit(RLIMIT_AS, &(struct rlimit){MEMORY_MAX, MEMORY_MAX}) != 0)
		_exit(1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (prctl(PR_SET_DUMPABLE, 0) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		_exit(1);
}

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "name the architecture for the filter of system calls"
#endif

/* An allow-list: memory, time, locks, the one socket, the end. All else fails with EPERM. */
static void forbid_system_calls(void)
{
	static const int allowed[] = {
		SYS_read, SYS_write, SYS_recvfrom, SYS_sendto, SYS_brk, SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_futex,
		SYS_clock_gettime, SYS_gettimeofday, SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_exit, SYS_exit_group, SYS_getpid, SYS_gettid,
		SYS_tgkill, SYS_getrandom,
#if SANITIZED /* what the sanitizers' own threads, unwinder and reports need */
		SYS_sched_yield, SYS_sigaltstack, SYS_nanosleep, SYS_clock_nanosleep, SYS_getrusage, SYS_openat, SYS_close, SYS_fstat, SYS_newfstatat,
		SYS_readlinkat, SYS_lseek, SYS_rt_sigaction, SYS_prctl, SYS_kill,
#ifdef SYS_readlink
		SYS_readlink, SYS_open, SYS_stat,
#endif
#endif
	};
	enum { COUNT = sizeof allowed / sizeof *allowed };
	struct sock_filter filter[COUNT + 6];
	unsigned short at = 0;

	filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
	filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
	filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (unsigned i = 0; i < COUNT; i++)
		filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i], (unsigned char)(COUNT - i), 0);
	filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &(struct sock_fprog){at, filter}) != 0)
		_exit(1);
}

/* ---- Frames */

/* False: the other end is gone. */
static bool read_all(void *data, size_t len)
{
	char *at = data;

	while (len > 0) {
		ssize_t got = read(0, at, len);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		at += got;
		len -= (size_t)got;
	}
	return true;
}

static void send_all(const void *data, size_t len)
{
	const char *at = data;

	while (len > 0) {
		ssize_t sent = send(0, at, len, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			_exit(0);
		at += sent;
		len -= (size_t)sent;
	}
}

static void answer(char tag, const char *text, size_t len)
{
	static char *frame;
	static size_t cap;
	uint32_t payload = (uint32_t)len + 1;

	if (cap < len + 5) {
		free(frame);
		cap = len + 4096;
		frame = malloc(cap);
		if (!frame)
			_exit(1);
	}
	for (int i = 0; i < 4; i++)
		frame[i] = (char)(payload >> 8 * i);
	frame[4] = tag;
	memcpy(frame + 5, text, len);
	send_all(frame, len + 5);
}

static void answer_failure(const char *text)
{
	answer(EVALUATION_FAILED, text, strlen(text));
}

/* ---- Programs */

struct message {
	long line; /* of the program, from 1; 0: unknown */
	char text[MESSAGE_LEN_MAX];
};

struct messages {
	struct message items[EVALUATION_BATCH_MAX * 2];
	size_t count;
};

/* jq says "jq: error: WHAT at <top-level>, line N:" and repeats the line. Kept are WHAT, without the guess about shells, and N. */
static void on_message(void *context, jv given)
{
	static const char prefix[] = "jq: error: ", guess[] = " (Unix shell quoting issues?)", place[] = " at <top-level>, line ";
	struct messages *messages = context;
	jv formatted = jq_format_error(given);
	const char *text = jv_string_value(formatted), *at;

	if (strncmp(text, prefix, sizeof prefix - 1) == 0 && messages->count < sizeof messages->items / sizeof *messages->items) {
		struct message *message = &messages->items[messages->count++];
		size_t len;
		text += sizeof prefix - 1;
		at = strstr(text, place);
		message->line = at ? strtol(at + sizeof place - 1, NULL, 10) : 0;
		len = at ? (size_t)(at - text) : strcspn(text, "\n");
		snprintf(message->text, sizeof message->text, "%.*s", (int)len, text);
		char *aside = strstr(message->text, guess);
		if (aside)
			memmove(aside, aside + sizeof guess - 1, strlen(aside + sizeof guess - 1) + 1);
	}
	jv_free(formatted);
}

static jq_state *compile(const char *program, struct messages *messages)
{
	jq_state *jq = jq_init();

	if (!jq)
		_exit(1);
	messages->count = 0;
	jq_set_error_cb(jq, on_message, messages);
	jq_set_attr(jq, jv_string("JQ_LIBRARY_PATH"), jv_array());
	if (!jq_compile(jq, program)) {
		jq_teardown(&jq);
		return NULL;
	}
	jq_set_error_cb(jq, NULL, NULL);
	return jq;
}

/* ". as [$__d,$context,$item] | $__d | (" … the expression follows on a line of its own. Its brackets are known to close, so it cannot
 * leave the parentheses; the line's end closes a comment. */
static void add_head(struct buffer *out, const char *names)
{
	buffer_add_text(out, ". as [$__d");
	for (const char *at = names; *at;) {
		size_t len = strcspn(at, ",");
		buffer_printf(out, ",$%.*s", (int)len, at);
		at += len + (at[len] == ',');
	}
	buffer_add_text(out, "] | $__d | (\n");
}

/* Compiled code of one expression, or of several that were asked for at about the same time: compiling many costs little more than one. */
struct code {
	jq_state *jq;
	size_t uses;
	bool indexed; /* its input is [index, arguments], else the arguments */
};

struct program {
	char *key; /* names NUL expression NUL */
	size_t key_len, index;
	struct code *code;
	uint64_t used;
};

static struct program programs[PROGRAMS_MAX];
static size_t program_count;
static uint64_t uses;
static bool warmed; /* a 'W' came since the last evaluation: what is still missing is compiled alone */

static struct program *find_program(const char *key, size_t key_len)
{
	for (size_t i = 0; i < program_count; i++)
		if (programs[i].key_len == key_len && memcmp(programs[i].key, key, key_len) == 0) {
			programs[i].used = ++uses;
			return &programs[i];
		}
	return NULL;
}

static void release_code(struct code *code)
{
	if (--code->uses > 0)
		return;
	jq_teardown(&code->jq);
	free(code);
}

static struct code *new_code(jq_state *jq, bool indexed)
{
	struct code *code = malloc(sizeof *code);

	if (!code)
		_exit(1);
	*code = (struct code){.jq = jq, .indexed = indexed};
	return code;
}

static struct program *add_program(const char *key, size_t key_len, struct code *code, size_t index)
{
	struct program *program = &programs[0];

	if (program_count < PROGRAMS_MAX) {
		program = &programs[program_count++];
	} else {
		for (size_t i = 1; i < program_count; i++)
			if (programs[i].used < program->used)
				program = &programs[i];
		free(program->key);
		release_code(program->code);
	}
	*program = (struct program){.key = malloc(key_len), .key_len = key_len, .index = index, .code = code, .used = ++uses};
	if (!program->key)
		_exit(1);
	memcpy(program->key, key, key_len);
	code->uses++;
	return program;
}

/* NULL: it was answered. */
static struct program *get_program(const char *names, const char *expression, size_t key_len)
{
	static struct messages messages;
	struct program *program = find_program(names, key_len);
	struct buffer text;

	if (program)
		return program;
	if (!warmed) {
		answer(EVALUATION_MISSING, "", 0);
		return NULL;
	}
	buffer_init(&text, EVALUATION_EXPRESSION_MAX * 2 + EVALUATION_REQUEST_MAX);
	buffer_add_text(&text, guards);
	add_head(&text, names);
	buffer_add_text(&text, expression);
	buffer_add_text(&text, "\n)");
	jq_state *jq = compile(buffer_text(&text), &messages);
	buffer_close(&text);
	if (jq)
		return add_program(names, key_len, new_code(jq, false), 0);
	answer_failure(messages.count > 0 ? messages.items[0].text : "jq cannot compile it");
	return NULL;
}

/* ---- Evaluating */

static void answer_result(jv result)
{
	if (!jv_is_valid(result)) {
		if (jv_invalid_has_msg(jv_copy(result))) {
			jv message = jv_invalid_get_msg(result);
			if (jv_get_kind(message) != JV_KIND_STRING)
				message = jv_dump_string(message, 0);
			size_t len = (size_t)jv_string_length_bytes(jv_copy(message));
			answer(EVALUATION_FAILED, jv_string_value(message), len < EVALUATION_RESULT_MAX ? len : EVALUATION_RESULT_MAX);
			jv_free(message);
			return;
		}
		jv_free(result); /* empty, and error(null), which libjq 1.6 cannot tell from it */
		result = jv_null();
	}
	jv text = jv_dump_string(JV_ARRAY(result), 0);
	size_t len = (size_t)jv_string_length_bytes(jv_copy(text));
	if (len > EVALUATION_RESULT_MAX) {
		char message[120];
		snprintf(message, sizeof message, "its result has more than %d MiB, the most allowed (EVALUATION_RESULT_MAX)", EVALUATION_RESULT_MAX >> 20);
		answer_failure(message);
	} else {
		answer(EVALUATION_VALUE, jv_string_value(text), len);
	}
	jv_free(text);
}

/* request: 'E' names NUL expression NUL arguments; a NUL stands behind it. */
static void evaluate(const char *request, size_t len)
{
	const char *names = request + 1, *end = request + len, *expression = names + strlen(names) + 1, *arguments;

	if (expression > end || (arguments = expression + strlen(expression) + 1) > end)
		_exit(1);
	struct program *program = get_program(names, expression, (size_t)(arguments - names));
	if (!program)
		return;
	jv input = jv_parse_sized(arguments, (int)(end - arguments));
	if (!jv_is_valid(input)) { /* nests deeper than jq's parser goes, which ours would have refused */
		jv_free(input);
		answer_failure("its arguments cannot be read");
		return;
	}
	if (program->code->indexed)
		input = jv_array_append(jv_array_append(jv_array(), jv_number((double)program->index)), input);
	jq_start(program->code->jq, input, 0);
	answer_result(jq_next(program->code->jq));
	jq_start(program->code->jq, jv_null(), 0); /* lets go of what the evaluation still holds */
}

/* ---- Compiling a batch: one program, since jq reads all its own functions anew for each, which takes 13 ms */

struct part {
	const char *names, *expression;
	size_t key_len; /* of both, with their NULs */
	long first_line, line_count; /* in the program */
	bool bad;
};

static long count_lines(const char *text)
{
	long count = 1;

	for (; (text = strchr(text, '\n')); text++)
		count++;
	return count;
}

/* One after the other, with commas; it never runs. As bodies of functions they would take jq three times as long: it binds the name of each
 * in all that follows. */
static void build_batch(struct buffer *out, struct part *parts, size_t count)
{
	long line = 1;

	buffer_clear(out);
	buffer_add_text(out, guards);
	for (size_t i = 0; i < count; i++) {
		const char *expression = parts[i].bad ? "." : parts[i].expression;
		buffer_add_text(out, i > 0 ? ",(" : "(");
		add_head(out, parts[i].names);
		parts[i].first_line = ++line;
		parts[i].line_count = count_lines(expression);
		buffer_printf(out, "%s\n))", expression);
		line += parts[i].line_count;
		buffer_add_char(out, '\n');
		line++;
	}
}

static size_t read_parts(const char *request, size_t len, struct part parts[EVALUATION_BATCH_MAX])
{
	const char *at = request + 1, *end = request + len;
	size_t count = 0;

	while (at < end && count < EVALUATION_BATCH_MAX) {
		parts[count] = (struct part){.names = at, .expression = at + strlen(at) + 1};
		if (parts[count].expression > end)
			_exit(1);
		at = parts[count].expression + strlen(parts[count].expression) + 1;
		if (at > end)
			_exit(1);
		parts[count].key_len = (size_t)(at - parts[count].names);
		count++;
	}
	return count;
}

/* if $__i < middle then … else … end, down to one: as many comparisons as halves. */
static void add_choice(struct buffer *out, const struct part *parts, size_t from, size_t until)
{
	size_t middle = from + (until - from) / 2;

	if (until - from == 1) {
		buffer_add_char(out, '(');
		add_head(out, parts[from].names);
		buffer_printf(out, "%s\n))", parts[from].expression);
		return;
	}
	buffer_printf(out, "if $__i < %zu then ", middle);
	add_choice(out, parts, from, middle);
	buffer_add_text(out, " else ");
	add_choice(out, parts, middle, until);
	buffer_add_text(out, " end");
}

/* One program for all that are not here yet. Where it does not compile, which registration should have seen, each comes alone later. */
static void warm(const char *request, size_t len)
{
	static struct messages messages;
	struct part parts[EVALUATION_BATCH_MAX];
	size_t given = read_parts(request, len, parts), count = 0;
	struct buffer text;

	for (size_t i = 0; i < given; i++)
		if (!find_program(parts[i].names, parts[i].key_len))
			parts[count++] = parts[i];
	if (count > 0) {
		buffer_init(&text, EVALUATION_REQUEST_MAX * 2);
		buffer_add_text(&text, guards);
		buffer_add_text(&text, ". as [$__i,$__a] | $__a | ");
		add_choice(&text, parts, 0, count);
		jq_state *jq = compile(buffer_text(&text), &messages);
		buffer_close(&text);
		struct code *code = jq ? new_code(jq, true) : NULL;
		for (size_t i = 0; i < count && code; i++)
			add_program(parts[i].names, parts[i].key_len, code, i);
	}
	answer(EVALUATION_READY, "", 0);
}

static void compile_batch(const char *request, size_t len)
{
	static struct messages messages;
	struct part parts[EVALUATION_BATCH_MAX];
	size_t count = read_parts(request, len, parts);
	jv problems = jv_array();
	struct buffer text;

	buffer_init(&text, EVALUATION_REQUEST_MAX * 2);
	for (unsigned round = 0; round < COMPILE_ROUNDS_MAX; round++) {
		bool any = false;
		build_batch(&text, parts, count);
		jq_state *jq = compile(buffer_text(&text), &messages);
		if (jq) {
			jq_teardown(&jq);
			break;
		}
		for (size_t m = 0; m < messages.count; m++)
			for (size_t i = 0; i < count; i++) {
				const struct message *message = &messages.items[m];
				/* An error at the end is told of the line of the closing parenthesis. */
				if (parts[i].bad || message->line < parts[i].first_line || message->line > parts[i].first_line + parts[i].line_count)
					continue;
				parts[i].bad = any = true;
				long line = message->line - parts[i].first_line + 1;
				jv problem = jv_object_set(jv_object(), jv_string("index"), jv_number((double)i));
				problem = jv_object_set(problem, jv_string("line"), jv_number((double)(line > parts[i].line_count ? parts[i].line_count : line)));
				problem = jv_object_set(problem, jv_string("message"), jv_string(message->text));
				problems = jv_array_append(problems, problem);
			}
		if (!any) { /* of no line that belongs to one: each is tried alone */
			for (size_t i = 0; i < count; i++) {
				struct part alone = parts[i];
				if (alone.bad)
					continue;
				build_batch(&text, &alone, 1);
				jq = compile(buffer_text(&text), &messages);
				if (jq) {
					jq_teardown(&jq);
					continue;
				}
				jv problem = jv_object_set(jv_object(), jv_string("index"), jv_number((double)i));
				problem = jv_object_set(problem, jv_string("line"), jv_number(0));
				problem = jv_object_set(problem, jv_string("message"), jv_string(messages.count > 0 ? messages.items[0].text : "jq cannot compile it"));
				problems = jv_array_append(problems, problem);
			}
			break;
		}
	}
	buffer_close(&text);
	jv list = jv_dump_string(problems, 0);
	answer(EVALUATION_PROBLEMS, jv_string_value(list), (size_t)jv_string_length_bytes(jv_copy(list)));
	jv_free(list);
}

int main(int count, char **arguments)
{
	char *request = NULL;
	size_t cap = 0;

	if (count > 1) {
		printf("reprise-jq " REPRISE_VERSION ": evaluates expressions for reprised and reprise, which start it; nothing to use by hand\n");
		return strcmp(arguments[1], "--version") == 0 || strcmp(arguments[1], "--help") == 0 ? 0 : 2;
	}
	take_away_all();
	forbid_system_calls();
	for (;;) {
		uint8_t head[4];
		if (!read_all(head, sizeof head))
			_exit(0);
		size_t len = (size_t)head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
		if (len == 0 || len > EVALUATION_REQUEST_MAX)
			_exit(1);
		if (cap < len + 1) {
			free(request);
			cap = len + 4096;
			request = malloc(cap);
			if (!request)
				_exit(1);
		}
		if (!read_all(request, len))
			_exit(0);
		request[len] = 0;
		if (request[0] == EVALUATION_EVALUATE) {
			evaluate(request, len);
			warmed = false;
		} else if (request[0] == EVALUATION_WARM) {
			warm(request, len);
			warmed = true;
		} else if (request[0] == EVALUATION_COMPILE) {
			compile_batch(request, len);
		} else {
			_exit(1);
		}
	}
}
