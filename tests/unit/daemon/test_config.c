/* Tests of daemon/config.c: what is read, and that every mistake is told with its line and column. */
#include "daemon/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activities/address.h"
#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"

struct parsed {
	struct config config;
	struct problems problems;
};

static void parse(struct parsed *parsed, const char *text)
{
	config_init(&parsed->config);
	problems_init(&parsed->problems);
	config_parse(&parsed->config, bytes_text(text), &parsed->problems);
}

static void close_parsed(struct parsed *parsed)
{
	config_close(&parsed->config);
	problems_close(&parsed->problems);
}

/* Everything that can be said is read, with its units. */
START_TEST(whole_configuration_is_read)
{
	static const char text[] =
		"data: /var/lib/reprise\n"
		"listen: [unix:/run/reprise/a.sock, unix:/run/reprise/b.sock]\n"
		"runtimes:\n"
		"  extractor:\n"
		"    kind: openai\n"
		"    url: http://127.0.0.1:1234/\n"
		"    model: tiny\n"
		"    weights: {file: /models/tiny.gguf}\n"
		"    concurrency: 3\n"
		"    sampling: {temperature: 0.6, topP: 0.95, seed: 42, maxTokens: 2048, stop: [x, y]}\n"
		"    timeouts: {connect: 5s, firstToken: 120s, betweenTokens: 250ms, total: PT20M}\n"
		"    retry: {attempts: 5, floor: 1s, cap: 2m}\n"
		"    watch: {whiteSpace: off, loopBytes: 4096, schema: false}\n"
		"    apiKey: {secret: the-key}\n"
		"  judge: {kind: simulator}\n"
		"secrets: {the-key: {env: TEST_SECRET, hosts: [127.0.0.1]}}\n"
		"signing: {fact: {file: f.pem}, log: {file: l.pem}, checkpoint: {entries: 8, every: 10s}}\n"
		"http: {allow: [public, '127.0.0.0/8']}\n"
		"limits: {connections: 10, waiters: 11, streams: 12, body: 64KiB, document: 1.5MiB, bodies: 100, wakeEvery: 200ms, idle: 1m, request: 2m}\n";
	struct parsed parsed;

	setenv("TEST_SECRET", "s3cret", 1);
	parse(&parsed, text);
	ck_assert_msg(parsed.problems.count == 0, "%s", parsed.problems.count ? parsed.problems.items[0].message : "");
	const struct config *config = &parsed.config;
	ck_assert_str_eq(config->data_dir, "/var/lib/reprise");
	ck_assert_uint_eq(config->listen_count, 2);
	ck_assert_str_eq(config->listen[1], "/run/reprise/b.sock");
	ck_assert_uint_eq(config->runtime_count, 2);
	const struct runtime_config *runtime = &config->runtimes[0];
	ck_assert_str_eq(runtime->name, "extractor");
	ck_assert_str_eq(runtime->kind, "openai");
	ck_assert_str_eq(runtime->url, "http://127.0.0.1:1234");
	ck_assert_str_eq(runtime->model, "tiny");
	ck_assert_str_eq(runtime->weights_file, "/models/tiny.gguf");
	ck_assert_str_eq(runtime->api_key, "s3cret");
	ck_assert_uint_eq(runtime->concurrency, 3);
	ck_assert_int_eq(runtime->connect_ms, 5000);
	ck_assert_int_eq(runtime->first_token_ms, 120000);
	ck_assert_int_eq(runtime->between_tokens_ms, 250);
	ck_assert_int_eq(runtime->total_ms, 1200000);
	ck_assert_uint_eq(runtime->retry_attempts, 5);
	ck_assert_int_eq(runtime->retry_floor_ms, 1000);
	ck_assert_int_eq(runtime->retry_cap_ms, 120000);
	ck_assert_int_eq(runtime->watch_white_space, -1);
	ck_assert_int_eq(runtime->watch_loop_bytes, 4096);
	ck_assert(runtime->watch_no_schema);
	ck_assert_int_eq(config->runtimes[1].watch_white_space, 512);
	ck_assert_int_eq(config->runtimes[1].watch_loop_bytes, 2048);
	ck_assert(!config->runtimes[1].watch_no_schema);
	ck_assert(json_get_number(runtime->sampling, "seed", 0) == 42);
	ck_assert(!config->runtime_starts_simulator[0]);
	ck_assert(config->runtime_starts_simulator[1]);
	ck_assert_uint_eq(config->http_allow_count, 2);
	ck_assert_str_eq(config->http_allow[1], "127.0.0.0/8");
	ck_assert_str_eq(config->fact_key_file, "f.pem");
	ck_assert_str_eq(config->log_key_file, "l.pem");
	ck_assert_uint_eq(config->checkpoint_entries, 8);
	ck_assert_int_eq(config->checkpoint_every_ms, 10000);
	ck_assert_uint_eq(config->limits.connections, 10);
	ck_assert_uint_eq(config->limits.waiters, 11);
	ck_assert_uint_eq(config->limits.streams, 12);
	ck_assert_uint_eq(config->limits.body, 65536);
	ck_assert_uint_eq(config->limits.document, 1572864);
	ck_assert_uint_eq(config->limits.bodies, 100);
	ck_assert_int_eq(config->limits.wake_every_ms, 200);
	ck_assert_int_eq(config->limits.idle_ms, 60000);
	ck_assert_int_eq(config->limits.request_ms, 120000);
	close_parsed(&parsed);
}
END_TEST

/* A secret is never shown, in no form; what is in force otherwise is. */
START_TEST(secrets_are_not_shown)
{
	struct parsed parsed;
	struct arena arena;

	setenv("TEST_SECRET", "s3cret", 1);
	parse(&parsed, "secrets: {the-key: {env: TEST_SECRET, hosts: [h]}}\nruntimes: {a: {kind: openai, url: 'http://h:1', apiKey: {secret: the-key}}}\n");
	ck_assert_uint_eq(parsed.problems.count, 0);
	parsed.config.data_dir = "/d";
	arena_init(&arena);
	struct bytes shown = json_print_arena(config_json(&parsed.config, &arena), &arena);
	ck_assert_ptr_null(strstr((const char *)shown.data, "s3cret"));
	ck_assert_ptr_nonnull(strstr((const char *)shown.data, "the-key"));
	ck_assert_ptr_nonnull(strstr((const char *)shown.data, "\"wakeEvery\":\"15s\""));
	arena_close(&arena);
	close_parsed(&parsed);
}
END_TEST

static const struct mistake {
	const char *text;
	size_t line, column;
	const char *message; /* part of it */
} mistakes[] = {
	{"dta: x\n", 1, 1, "unknown key 'dta'"},
	{"data: 7\n", 1, 7, "expected a text, found number"},
	{"data: ''\n", 1, 7, "empty"},
	{"[]\n", 1, 1, "expected a mapping"},
	{"data: [\n", 2, 0, ""},
	{"data: a\ndata: b\n", 2, 0, ""},
	{"listen: tcp:127.0.0.1:7411\n", 1, 9, "access tokens"},
	{"listen:\n  - unix:/a\n  - /b\n", 3, 5, "expected unix:PATH"},
	{"listen: ['unix:']\n", 1, 10, "expected unix:PATH"},
	{"listen: [7]\n", 1, 10, "expected an address"},
	{"listen: [unix:a, unix:b, unix:c, unix:d, unix:e, unix:f, unix:g, unix:h, unix:i]\n", 1, 74, "more than 8"},
	{"listen: unix:/01234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\n", 1, 9, "limit for a socket"},
	{"runtimes: []\n", 1, 11, "expected a mapping"},
	{"runtimes: {a: {url: 'http://x'}}\n", 1, 15, "has no kind"},
	{"runtimes: {a: {kind: openai}}\n", 1, 15, "has no url"},
	{"runtimes:\n  a:\n    kind: simulator\n    urll: http://x\n", 4, 5, "unknown key 'urll'"},
	{"runtimes:\n  a: {kind: lmstudio, url: 'http://x', sampling: {minP: 0.1}}\n", 2, 57, "kind lmstudio has no such field"},
	{"runtimes:\n  a: {kind: ollama, url: 'http://x', sampling: {reasoningEffort: xhigh}}\n", 2, 66, "takes none, low"},
	{"runtimes:\n  a: {kind: vllm, url: 'http://x', weights: {file: /a, dir: /b}}\n", 2, 45, "a file or a folder"},
	{"runtimes:\n  a: {kind: vllm, url: 'http://x', probeEvery: 10ms}\n", 2, 48, "every 1000 ms at most"},
	{"runtimes:\n  a: {kind: vllm, url: 'http://x', contextLength: 0}\n", 2, 51, "whole number from 1"},
	{"runtimes:\n  a: {kind: gpt, url: 'http://x'}\n", 2, 13, "unknown kind 'gpt'"},
	{"runtimes:\n  a: {kind: openai, url: 'ftp://x'}\n", 2, 26, "http://"},
	{"runtimes:\n  a: {kind: openai, url: 'http://x/v1'}\n", 2, 26, "/v1"},
	{"runtimes:\n  a: {kind: openai, url: 'http://me:pw@x'}\n", 2, 26, "user"},
	{"runtimes:\n  a: {kind: openai, url: 'http://'}\n", 2, 26, "no host"},
	{"runtimes:\n  'a b': {kind: simulator}\n", 2, 3, "a runtime's name"},
	{"runtimes:\n  a: {kind: simulator, launch: {argv: [x]}}\n", 2, 6, "has launch, but no url"},
	{"runtimes:\n  a: {kind: openai, url: 'http://x', launch: {}}\n", 2, 46, "no argv"},
	{"runtimes:\n  a: {kind: openai, url: 'http://x', launch: {argv: [a/b]}}\n", 2, 53, "whole path"},
	{"runtimes:\n  a: {kind: openai, url: 'http://x', launch: {argv: [x], systemd: true}}\n", 2, 58, "'systemd' is not supported"},
	{"runtimes:\n  a: {kind: openai, url: 'http://x', launch: {argv: [x], restart: {attempts: 1001}}}\n", 2, 78, "from 0 to 1000"},
	{"runtimes:\n  a: {kind: openai, url: 'http://x', launch: {argv: [x], ready: {within: 25h}}}\n", 2, 74, "over the limit"},
	{"runtimes:\n  a: {kind: simulator, concurrency: 0}\n", 2, 37, "from 1 to 10000"},
	{"runtimes:\n  a: {kind: simulator, concurrency: 1.5}\n", 2, 37, "whole number"},
	{"runtimes:\n  a: {kind: simulator, concurrency: most}\n", 2, 37, "or auto"},
	{"runtimes:\n  a: {kind: simulator, priority: 10}\n", 2, 34, "from 0 to 9"},
	{"runtimes:\n  a: {kind: simulator, priority: -1}\n", 2, 34, "from 0 to 9"},
	{"runtimes:\n  a: {kind: simulator, loadedModels: 9}\n", 2, 38, "from 1 to 8"},
	{"runtimes:\n  a: {kind: ollama, url: 'http://x', loadedModels: 1}\n  b: {kind: ollama, url: 'http://x/', loadedModels: 2}\n", 3, 6, "loadedModels 1 and 2"},
	{"runtimes:\n  a: {kind: simulator, rate: {per: 1m}}\n", 2, 30, "neither requests nor tokens"},
	{"runtimes:\n  a: {kind: simulator, rate: {requests: 0}}\n", 2, 41, "from 1 to 67108864"},
	{"runtimes:\n  a: {kind: simulator, rate: {tokens: 1, per: 999ms}}\n", 2, 47, "from 1000 ms to 24 h"},
	{"runtimes:\n  a: {kind: simulator, budget: {}}\n", 2, 32, "neither tokens nor seconds"},
	{"runtimes:\n  a: {kind: simulator, budget: {tokens: 0}}\n", 2, 41, "from 1 to 1000000000000"},
	{"runtimes:\n  a: {kind: simulator, budget: {tokens: 1000000000001}}\n", 2, 41, "from 1 to 1000000000000"},
	{"runtimes:\n  a: {kind: simulator, budget: {seconds: 1000000001}}\n", 2, 42, "from 1 to 1000000000"},
	{"runtimes:\n  a: {kind: simulator, budget: {seconds: 1m}}\n", 2, 42, "from 1 to 1000000000"},
	{"runtimes:\n  a: {kind: simulator, budget: {tokens: 1, per: 1d}}\n", 2, 44, "per"},
	{"runtimes:\n  a: {kind: simulator, rate: {tokens: 1, per: 25h}}\n", 2, 47, "from 1000 ms to 24 h"},
	{"runtimes:\n  a: {kind: simulator, timeouts: {total: 5}}\n", 2, 42, "expected a duration"},
	{"runtimes:\n  a: {kind: simulator, timeouts: {total: soon}}\n", 2, 42, "not a duration"},
	{"runtimes:\n  a: {kind: simulator, timeouts: {total: 0s}}\n", 2, 42, "longer than nothing"},
	{"runtimes:\n  a: {kind: simulator, timeouts: {first: 5s}}\n", 2, 35, "unknown key 'first'"},
	{"runtimes:\n  a: {kind: simulator, retry: {attempts: 0}}\n", 2, 42, "from 1 to 1000"},
	{"runtimes:\n  a: {kind: simulator, watch: {whiteSpace: 31}}\n", 2, 44, "off, or a whole number from 32 to 16777216"},
	{"runtimes:\n  a: {kind: simulator, watch: {loopBytes: 255}}\n", 2, 43, "off, or a whole number from 256 to 16777216"},
	{"runtimes:\n  a: {kind: simulator, watch: {loopBytes: 16777217}}\n", 2, 43, "off, or a whole number from 256"},
	{"runtimes:\n  a: {kind: simulator, watch: {schema: off}}\n", 2, 40, "true or false"},
	{"runtimes:\n  a: {kind: simulator, watch: {loops: off}}\n", 2, 32, "unknown key 'loops'"},
	{"runtimes:\n  a: {kind: simulator, retry: {floor: 10s, cap: 1s}}\n", 2, 31, "above cap"},
	{"runtimes:\n  a: {kind: simulator, sampling: {temperature: hot}}\n", 2, 48, "from 0 to 10"},
	{"runtimes:\n  a: {kind: simulator, sampling: {topp: 1}}\n", 2, 35, "unknown key 'topp'"},
	{"runtimes:\n  a: {kind: simulator, sampling: {seed: 1.5}}\n", 2, 41, "whole number"},
	{"runtimes:\n  a: {kind: simulator, sampling: {stop: 1}}\n", 2, 41, "text"},
	{"runtimes:\n  a: {kind: llamacpp, url: 'http://x', sampling: {mirostat: 3}}\n", 2, 61, "a whole number from 0 to 2"},
	{"runtimes:\n  a: {kind: llamacpp, url: 'http://x', sampling: {samplers: [top_k, top_x]}}\n", 2, 61, "kind llamacpp knows penalties, dry"},
	{"runtimes:\n  a: {kind: vllm, url: 'http://x', sampling: {temperature: 2.5}}\n", 2, 60, "kind vllm takes numbers from 0 to 2"},
	{"runtimes:\n  a: {kind: vllm, url: 'http://x', sampling: {stopTokenIds: [1, x]}}\n", 2, 65, "must be a token id"},
	{"runtimes:\n  a: {kind: vllm, url: 'http://x', sampling: {topP: null}}\n", 2, 53, "a number from 0 to 1"},
	{"runtimes:\n  a: {kind: openai, url: 'http://x', sampling: {stop: [a, b, c, d, e]}}\n", 2, 55, "kind openai takes at most 4 of them"},
	{"runtimes:\n  a: {kind: simulator, apiKey: sk-123}\n", 2, 32, "never written into the configuration"},
	{"runtimes:\n  a: {kind: simulator, apiKey: {secret: none}}\n", 2, 32, "no secret 'none'"},
	{"runtimes:\n  a: {kind: simulator, weights: x}\n", 2, 33, "mapping with file"},
	{"secrets: {a: {}}\n", 1, 14, "exactly one of"},
	{"secrets: {a: {file: /x, env: X}}\n", 1, 14, "exactly one of"},
	{"secrets: {a: {file: /nonexistent/secret}}\n", 1, 14, "/nonexistent/secret"},
	{"secrets: {a: {env: NO_SUCH_VARIABLE}}\n", 1, 14, "NO_SUCH_VARIABLE"},
	{"secrets: {a: {credential: x}}\n", 1, 14, "CREDENTIALS_DIRECTORY"},
	{"secrets: {a: {env: TEST_SECRET, namespaces: [x]}}\n", 1, 14, "lists the hosts"},
	{"secrets: {a: {env: TEST_SECRET, hosts: [h], namespaces: x}}\n", 1, 57, "a list of texts"},
	{"secrets: {a: {env: TEST_SECRET, hosts: [other]}}\nruntimes: {r: {kind: openai, url: 'http://x', apiKey: {secret: a}}}\n", 2, 55, "may not be sent to x"},
	{"signing: {keyring: {file: x}}\n", 1, 11, "'keyring' is not supported"},
	{"signing: {fact: x}\n", 1, 17, "mapping with file"},
	{"signing: {checkpoint: {entries: -1}}\n", 1, 33, "whole number"},
	{"http: {allow: public}\n", 1, 15, "expected a list"},
	{"http: {allow: [public, '999.0.0.0/8']}\n", 1, 24, "999.0.0.0/8"},
	{"http: {allow: ['10.0.0.0/99']}\n", 1, 16, "none of: public"},
	{"runtimes:\n  a: {kind: openai, model: m, url: 'http://x:99999'}\n", 2, 36, "port"},
	{"runtimes:\n  a: {kind: openai, model: m, url: 'http://[::1]:x/'}\n", 2, 36, "port"},
	{"http: {allow: ['127.0.0.1:21300']}\n", 1, 16, "ports are not part of it"},
	{"http: {allow: [127.0.0.1:21300]}\n", 1, 16, "ports are not part of it"},
	{"http:\n  allow:\n    - public\n    - host.example:80\n", 4, 7, "\"host.example:80\""},
	{"http: {allow: ['']}\n", 1, 16, "must not be empty"},
	{"http: {allow: [1]}\n", 1, 16, "expected a text"},
	{"runtimes:\n  a: {kind: openai, url: 'http://a b'}\n", 2, 26, "no spaces"},
	{"runtimes:\n  a: {kind: openai, url: 'http://[x]'}\n", 2, 26, "is not a URL"},
	{"secrets: {a: {env: TEST_LINES}}\nruntimes: {r: {kind: openai, url: 'http://x', apiKey: {secret: a}}}\n", 2, 55, "holds a line break"},
	{"http: {deny: []}\n", 1, 8, "unknown key 'deny'"},
	{"resources: [x]\n", 1, 13, "'x' is no absolute path"},
	{"resources: /x\n", 1, 12, "a list of folders"},
	{"retention: {runs: 30}\n", 1, 19, "expected a duration"},
	{"retention: {keepFacts: never}\n", 1, 24, "expected forever or runs"},
	{"retention: {runs: 2d, entries: 1d}\n", 1, 12, "entries is shorter than runs"},
	{"retention: {runs: forever}\n", 1, 12, "entries is shorter than runs"},
	{"retention: {facts: 1d}\n", 1, 13, "unknown key 'facts'"},
	{"limits: {body: 0}\n", 1, 16, "at least 1 byte"},
	{"limits: {body: 2 MB}\n", 1, 16, "expected a size"},
	{"limits: {document: 65MiB}\n", 1, 20, "limit of 64 MiB"},
	{"limits: {body: 65MiB}\n", 1, 16, "limit of 64 MiB"},
	{"limits: {bodys: 1}\n", 1, 10, "unknown key 'bodys'"},
	{"limits: {wakeEvery: 0ms}\n", 1, 21, "longer than nothing"},
	{"limits: {run: {}}\n", 1, 15, "neither tokens nor seconds"},
	{"limits: {run: {tokens: 0}}\n", 1, 24, "from 1 to 1000000000000"},
	{"limits: {run: {seconds: 1000000001}}\n", 1, 25, "from 1 to 1000000000"},
	{"limits: {run: {minutes: 1}}\n", 1, 16, "unknown key 'minutes'"},
	{"limits: {run: 7}\n", 1, 15, "a mapping with tokens and seconds"},
	{"events: {window: 2h, keep: 1h}\n", 1, 9, "shorter than window"},
	{"events: {keep: 0s}\n", 1, 16, "longer than nothing"},
	{"events: {kept: 1s}\n", 1, 10, "unknown key 'kept'"},
	{"sinks: [x]\n", 1, 8, "mapping of names to sinks"},
	{"sinks: {a: {}}\n", 1, 12, "sink 'a' has no url"},
	{"sinks: {a b: {url: 'http://x'}}\n", 1, 9, "a sink's name"},
	{"sinks: {a: {url: 'ftp://x'}}\n", 1, 18, "begins with http"},
	{"sinks: {a: {url: 'http://x', types: []}}\n", 1, 37, "0 types"},
	{"sinks: {a: {url: 'http://x', types: ['a*b']}}\n", 1, 38, "at the end of a type"},
	{"sinks: {a: {url: 'http://x', headers: {content-type: x}}}\n", 1, 40, "content type"},
	{"sinks: {a: {url: 'http://x', headers: {x y: z}}}\n", 1, 40, "a header's name holds no blank"},
	{"sinks: {a: {url: 'http://x', headers: {\"x:\\r\\ny\": z}}}\n", 1, 40, "a header's name holds no blank"},
	{"sinks: {a: {url: 'http://x', headers: {host: z}}}\n", 1, 40, "the delivery says this itself"},
	{"sinks: {a: {url: 'http://x', headers: {idempotency-key: z}}}\n", 1, 40, "the delivery says this itself"},
	{"sinks: {a: {url: 'http://x', headers: {x: \"a\\nb\"}}}\n", 1, 43, "one line"},
	{"sinks: {a: {url: 'http://x', headers: {x: {secret: none}}}}\n", 1, 43, "no secret 'none'"},
	{"sinks: {a: {url: 'http://x', headers: {x: {key: none}}}}\n", 1, 44, "unknown key 'key'"},
	{"sinks: {a: {url: 'http://x', apiKey: text}}\n", 1, 38, "never written into the configuration"},
};

/* Each mistake is one problem, an error, where it stands. */
START_TEST(mistakes_are_told_with_their_place)
{
	const struct mistake *mistake = &mistakes[_i];
	struct parsed parsed;

	setenv("TEST_SECRET", "x", 1);
	setenv("TEST_LINES", "x\ny", 1);
	unsetenv("CREDENTIALS_DIRECTORY");
	parse(&parsed, mistake->text);
	ck_assert_msg(parsed.problems.errors == 1, "%s: %zu errors, the second: %s", mistake->text, parsed.problems.errors,
		      parsed.problems.count > 1 ? parsed.problems.items[1].message : "-");
	const struct problem *problem = &parsed.problems.items[0];
	ck_assert_msg(problem->line == mistake->line && (mistake->column == 0 || problem->column == mistake->column), "%s: at %zu:%zu, expected %zu:%zu: %s", mistake->text,
		      problem->line, problem->column, mistake->line, mistake->column, problem->message);
	ck_assert_msg(strstr(problem->message, mistake->message) != NULL, "%s: says \"%s\"", mistake->text, problem->message);
	close_parsed(&parsed);
}
END_TEST

/* 32 sinks are read, one more is refused with the limit. */
START_TEST(sinks_are_limited)
{
	for (int extra = 0; extra < 2; extra++) {
		struct buffer text;
		struct parsed parsed;

		buffer_init(&text, CONFIG_FILE_MAX);
		buffer_add_text(&text, "sinks:\n");
		for (int i = 0; i < CONFIG_SINKS_MAX + extra; i++)
			buffer_printf(&text, "  s%d: {url: 'http://x'}\n", i);
		parse(&parsed, buffer_text(&text));
		ck_assert_uint_eq(parsed.problems.errors, (size_t)extra);
		if (extra)
			ck_assert_str_eq(parsed.problems.items[0].message, "33 sinks are over the limit of 32 (CONFIG_SINKS_MAX)");
		else
			ck_assert_uint_eq(parsed.config.sink_count, CONFIG_SINKS_MAX);
		close_parsed(&parsed);
		buffer_close(&text);
	}
}
END_TEST

/* So are addresses, folders of resources, and the types and headers of a sink. */
START_TEST(lists_are_limited)
{
	static const struct {
		const char *before, *item, *after; /* %d: a number */
		int max;
		const char *message;
	} cases[] = {
		{"listen: [", "'unix:/run/a%d', ", "]\n", CONFIG_LISTEN_MAX, "more than 8 addresses (CONFIG_LISTEN_MAX)"},
		{"resources: [", "/r%d, ", "]\n", CONFIG_RESOURCE_FOLDERS_MAX, "65 folders are over the limit of 64 (CONFIG_RESOURCE_FOLDERS_MAX)"},
		{"sinks: {a: {url: 'http://x', types: [", "t%d, ", "]}}\n", CONFIG_SINK_WORDS_MAX, "65 types; 1 to 64 are possible (CONFIG_SINK_WORDS_MAX)"},
		{"sinks: {a: {url: 'http://x', headers: {", "h%d: x, ", "}}}\n", CONFIG_SINK_WORDS_MAX, "65 headers are over the limit of 64 (CONFIG_SINK_WORDS_MAX)"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++)
		for (int extra = 0; extra < 2; extra++) {
			struct buffer text;
			struct parsed parsed;

			buffer_init(&text, CONFIG_FILE_MAX);
			buffer_add_text(&text, cases[i].before);
			for (int k = 0; k < cases[i].max + extra; k++) {
				const char *number = strchr(cases[i].item, '%');

				buffer_printf(&text, "%.*s%d%s", (int)(number - cases[i].item), cases[i].item, k, number + 2);
			}
			buffer_add_text(&text, cases[i].after);
			parse(&parsed, buffer_text(&text));
			ck_assert_msg(parsed.problems.errors == (size_t)extra, "%s: %zu errors: %s", cases[i].before, parsed.problems.errors, parsed.problems.count ? parsed.problems.items[0].message : "");
			if (extra)
				ck_assert_str_eq(parsed.problems.items[0].message, cases[i].message);
			close_parsed(&parsed);
			buffer_close(&text);
		}
}
END_TEST

/* All of them are told at once. */
START_TEST(all_mistakes_at_once)
{
	struct parsed parsed;

	parse(&parsed, "dta: x\nlimits: {body: 0, waiters: none}\nruntimes: {a: {kind: x, foo: 1}}\n");
	ck_assert_uint_eq(parsed.problems.errors, 5);
	close_parsed(&parsed);
}
END_TEST

/* A near miss is told what was meant. */
START_TEST(hints_name_the_nearest_key)
{
	struct parsed parsed;

	parse(&parsed, "limits: {wakeEvry: 1s}\n");
	ck_assert_str_eq(parsed.problems.items[0].hint, "did you mean 'wakeEvery'?");
	close_parsed(&parsed);
	parse(&parsed, "http: {zzzzzz: 1}\n");
	ck_assert_str_eq(parsed.problems.items[0].hint, "known here: allow");
	close_parsed(&parsed);
}
END_TEST

/* Nothing but comments is a configuration in which nothing is set. */
START_TEST(empty_files_set_nothing)
{
	static const char *const texts[] = {"", "\n\n", "# data: x\n", "  # a\r\n\t# b"};

	for (size_t i = 0; i < COUNT_OF(texts); i++) {
		struct parsed parsed;
		parse(&parsed, texts[i]);
		ck_assert_uint_eq(parsed.problems.count, 0);
		ck_assert_uint_eq(parsed.config.limits.waiters, 4096);
		ck_assert_ptr_null(parsed.config.data_dir);
		close_parsed(&parsed);
	}
}
END_TEST

/* A mistake in one rule of http.allow is not told again for the next, and there is a limit of rules. */
START_TEST(rules_are_told_apart)
{
	struct parsed parsed;
	struct buffer text;

	parse(&parsed, "http: {allow: ['a:1', 7, public]}\n");
	ck_assert_uint_eq(parsed.problems.errors, 2);
	ck_assert_uint_eq(parsed.problems.items[1].column, 23);
	ck_assert_uint_eq(parsed.config.http_allow_count, 1);
	close_parsed(&parsed);
	for (int more = 0; more < 2; more++) {
		buffer_init(&text, 1 << 20);
		buffer_add_text(&text, "http:\n  allow:\n");
		for (int i = 0; i < ADDRESS_RULES_MAX + more; i++)
			buffer_add_text(&text, "    - public\n");
		parse(&parsed, buffer_text(&text));
		ck_assert_uint_eq(parsed.problems.errors, (size_t)more);
		if (more > 0)
			ck_assert_ptr_nonnull(strstr(parsed.problems.items[0].message, "1001 rules are over the limit of 1000"));
		close_parsed(&parsed);
		buffer_close(&text);
	}
}
END_TEST

/* Each limit of the numbers of things is reached: one less is taken. */
START_TEST(counts_have_limits)
{
	static const struct {
		const char *head, *item;
		int max;
	} cases[] = {{"runtimes:\n", "{kind: simulator}", CONFIG_RUNTIMES_MAX}, {"secrets:\n", "{env: TEST_SECRET}", CONFIG_SECRETS_MAX}};

	setenv("TEST_SECRET", "x", 1);
	for (size_t i = 0; i < COUNT_OF(cases); i++)
		for (int more = 0; more < 2; more++) {
			struct buffer text;
			struct parsed parsed;
			buffer_init(&text, 1 << 20);
			buffer_add_text(&text, cases[i].head);
			for (int n = 0; n < cases[i].max + more; n++)
				buffer_printf(&text, "  n%d: %s\n", n, cases[i].item);
			parse(&parsed, buffer_text(&text));
			ck_assert_uint_eq(parsed.problems.errors, (size_t)more);
			if (more)
				ck_assert_ptr_nonnull(strstr(parsed.problems.items[0].message, "over the limit of 256"));
			close_parsed(&parsed);
			buffer_close(&text);
		}
}
END_TEST

/* A secret's file: its last newline is none of it; empty, torn and huge ones are refused; all of it is wiped. */
START_TEST(secret_files)
{
	char path[] = "/tmp/reprise-secret-XXXXXX", text[256];
	struct parsed parsed;
	char *huge = memory_alloc(CONFIG_SECRET_MAX + 2);
	const struct {
		const char *bytes;
		size_t len;
		const char *message;
	} cases[] = {{"key\n", 4, NULL}, {"", 0, "empty"}, {"\n", 1, "empty"}, {"a\0b", 3, "NUL"}, {huge, CONFIG_SECRET_MAX, NULL}, {huge, CONFIG_SECRET_MAX + 1, "limit"}};

	memset(huge, 'k', CONFIG_SECRET_MAX + 2);
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	snprintf(text, sizeof text, "secrets: {a: {file: %s}}\nruntimes: {r: {kind: simulator, apiKey: {secret: a}}}\n", path);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		ck_assert_int_eq(ftruncate(fd, 0), 0);
		ck_assert_int_eq(pwrite(fd, cases[i].bytes, cases[i].len, 0), (ssize_t)cases[i].len);
		parse(&parsed, text);
		ck_assert_msg((cases[i].message == NULL) == (parsed.problems.errors == 0), "case %zu", i);
		if (cases[i].message)
			ck_assert_ptr_nonnull(strstr(parsed.problems.items[0].message, cases[i].message));
		else if (i == 0)
			ck_assert_str_eq(parsed.config.runtimes[0].api_key, "key");
		close_parsed(&parsed);
	}
	close(fd);
	unlink(path);
	/* What is no regular file is refused at once: a FIFO would be waited for, a link may lead anywhere. */
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(i == 0 ? mkfifo(path, 0600) : symlink("/etc/passwd", path), 0);
		parse(&parsed, text);
		ck_assert_ptr_nonnull(strstr(parsed.problems.items[0].message, "regular file"));
		close_parsed(&parsed);
		unlink(path);
	}
	free(huge);
}
END_TEST

/* Sizes: whole bytes, binary and decimal units, fractions; nothing else. */
START_TEST(sizes)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {{"0", 0}, {"512", 512}, {"1B", 1}, {"64KiB", 65536}, {"1.5MiB", 1572864}, {"2GiB", 2147483648u}, {"1kB", 1000}, {"3MB", 3000000}, {"1TiB", 1099511627776u}};
	static const char *const bad[] = {"", "x", "-1", "1 MiB", "1mib", "0x10", "1e3", "1K", "9999999TiB", "MiB", "1.5.5", "inf"};
	uint64_t bytes;

	for (size_t i = 0; i < COUNT_OF(good); i++) {
		ck_assert_msg(size_parse(good[i].text, &bytes), "%s", good[i].text);
		ck_assert_uint_eq(bytes, good[i].bytes);
	}
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		ck_assert_msg(!size_parse(bad[i], &bytes), "%s", bad[i]);
}
END_TEST

/* Flag, then environment, then file, then default. */
START_TEST(places_have_an_order)
{
	char folder[] = "/tmp/reprise-config-XXXXXX", path[128];
	struct config config;
	struct problems problems;
	struct error error = {0};

	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/c.yaml", folder);
	FILE *file = fopen(path, "w");
	fputs("data: /from/file\nlisten: unix:/from/file.sock\n", file);
	fclose(file);
	unsetenv("REPRISE_DATA");
	unsetenv("REPRISE_CONFIG");
	setenv("XDG_STATE_HOME", "/state", 1);
	setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
	const struct {
		struct config_options options;
		const char *environment, *data, *listen;
	} cases[] = {
		{{.file = path, .data_dir = "/flag", .listen = {"unix:/flag.sock"}, .listen_count = 1}, "/environment", "/flag", "/flag.sock"},
		{{.file = path}, "/environment", "/environment", "/from/file.sock"},
		{{.file = path}, NULL, "/from/file", "/from/file.sock"},
		{{0}, NULL, "/state/reprise", "/state/reprise/reprise.sock"},
	};
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		cases[i].environment ? setenv("REPRISE_DATA", cases[i].environment, 1) : unsetenv("REPRISE_DATA");
		problems_init(&problems);
		ck_assert_int_eq(config_load(&config, &cases[i].options, &problems, &error), 0);
		ck_assert_str_eq(config.data_dir, cases[i].data);
		ck_assert_uint_eq(config.listen_count, 1);
		ck_assert_str_eq(config.listen[0], cases[i].listen);
		config_close(&config);
		problems_close(&problems);
	}
	/* A file that is named has to be there. */
	const struct config_options missing = {.file = "/nonexistent.yaml"};
	problems_init(&problems);
	ck_assert_int_eq(config_load(&config, &missing, &problems, &error), ERR_NOT_FOUND);
	config_close(&config);
	const struct config_options a_folder = {.file = folder};
	ck_assert_int_eq(config_load(&config, &a_folder, &problems, &error), ERR_INVALID);
	config_close(&config);
	/* One byte over the limit of a file. */
	file = fopen(path, "w");
	for (int i = 0; i <= CONFIG_FILE_MAX; i++)
		fputc('#', file);
	fclose(file);
	const struct config_options large = {.file = path};
	ck_assert_int_eq(config_load(&config, &large, &problems, &error), ERR_TOO_LARGE);
	config_close(&config);
	problems_close(&problems);
	unlink(path);
	rmdir(folder);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("daemon/config");
	TCase *tests = tcase_create("config");

	tcase_add_test(tests, whole_configuration_is_read);
	tcase_add_test(tests, secrets_are_not_shown);
	tcase_add_loop_test(tests, mistakes_are_told_with_their_place, 0, COUNT_OF(mistakes));
	tcase_add_test(tests, sinks_are_limited);
	tcase_add_test(tests, lists_are_limited);
	tcase_add_test(tests, all_mistakes_at_once);
	tcase_add_test(tests, hints_name_the_nearest_key);
	tcase_add_test(tests, rules_are_told_apart);
	tcase_add_test(tests, empty_files_set_nothing);
	tcase_add_test(tests, counts_have_limits);
	tcase_add_test(tests, secret_files);
	tcase_add_test(tests, sizes);
	tcase_add_test(tests, places_have_an_order);
	suite_add_tcase(suite, tests);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
