/* The table of verbs: what each takes, what its help says. Parsing and help (options.c) read nothing else. */
#include "cli/command.h"
#include "workflow/base/check.h"

#define END {NULL, 0, NULL, NULL, false}
#define LABEL {"label", 'l', "K=V", "a label", true}
#define BUDGET                                                                                                                                    \
	{"budget", 0, "tokens=N,seconds=N", "what the run may use of models, either or both; a call past it faults the run, and reprise retry --budget goes on", false}
#define TIMEOUT {"timeout", 0, "D", "wait no longer than this (30s, 5m, PT1H); past it exit 7", false}
#define RUNTIME {"runtime", 'r', "NAME", "a runtime of the daemon's configuration; may be left out where there is one", false}
#define TRUST                                                                                                     \
	{"key", 'k', "FILE", "a public key to trust (PEM, or a log's verifier key)", true},      \
	{"log-key", 0, "FILE", "the log's key (verifier key or PEM)", true},                                        \
	{"root-key", 0, "FILE", "a root's public key, for a signed key ring", true},                              \
	{"keyring", 0, "FILE", "a key ring: purposes, windows, revocations", false}
#define RUN_FILTERS                                                                                                              \
	{"status", 's', "STATUS", "pending, running, waiting, suspended, cancelled, faulted or completed", false},              \
	{"workflow", 'w', "NS/NAME", "of this workflow; with :VERSION of that version alone", false},                           \
	{"parent", 'p', "RUN", "children of this run", false},                                                                  \
	{"forked-from", 0, "RUN", "forks of this run", false},                                                                  \
	{"label", 'l', "K=V", "with this label", false},                                                                        \
	{"since", 0, "TIME", "created at or after (RFC 3339, or a duration before now)", false},                                \
	{"until", 0, "TIME", "created before", false}

static const struct option_rule submit_options[] = {
	{"input", 'i', "JSON", "the input: JSON, @FILE, or - for standard input (default null)", false},
	{"id", 0, "ID", "the run's id: 1 to 64 of A-Z a-z 0-9 . _ - (default: a new one). Same id and content: the same run", false},
	LABEL,
	BUDGET,
	{"wait", 0, NULL, "wait until the run has ended; the exit status is then its outcome", false},
	TIMEOUT,
	END,
};
static const struct option_rule list_options[] = {
	RUN_FILTERS,
	{"limit", 'n', "N", "at most N runs (default 100)", false},
	{"all", 'a', NULL, "all of them", false},
	END,
};
static const struct option_rule count_options[] = {RUN_FILTERS, END};
static const struct option_rule show_options[] = {{"exit-status", 0, NULL, "exit with the run's outcome: 10 faulted, 11 cancelled, 12 killed, 13 timed out", false}, END};
static const struct option_rule result_options[] = {
	{"wait", 0, NULL, "wait until the run has ended", false},
	TIMEOUT,
	{"exit-status", 0, NULL, "exit with the run's outcome", false},
	END,
};
static const struct option_rule events_options[] = {
	{"follow", 'f', NULL, "go on until the run has ended, over reconnects and restarts of the daemon", false},
	{"after", 0, "SEQ", "only entries behind this one", false},
	END,
};
static const struct option_rule tokens_options[] = {
	{"follow", 'f', NULL, "go on until the run has ended, over reconnects and restarts of the daemon", false},
	{"step", 0, "STEP", "of this task alone, as `reprise events` names it: /do/0/answer@1", false},
	END,
};
static const struct option_rule replay_options[] = {
	{"all", 'a', NULL, "all runs of the journal", false},
	{"status", 's', "STATUS", "with --all: only runs of this status", false},
	{"since", 0, "TIME", "with --all: only runs created since then", false},
	END,
};
static const struct option_rule overhead_options[] = {{"limit", 'n', "N", "without RUN: the newest N runs (default 20)", false}, END};
static const struct option_rule cancel_options[] = {
	{"reason", 0, "TEXT", "why; kept in the journal", false},
	{"yes", 'y', NULL, "do not ask", false},
	END,
};
static const struct option_rule retry_options[] = {
	{"reason", 0, "TEXT", "why; kept in the journal", false},
	{"budget", 0, "tokens=N,seconds=N", "what it may use of models from now on, with all it has used; either or both", false},
	{"wait", 'w', NULL, "wait until the run has ended", false},
	{"timeout", 0, "D", "wait no longer than this", false},
	END,
};
static const struct option_rule fork_options[] = {
	{"from", 0, "TASK", "the task that the fork begins with: its step id (/do/1/ask@1), reference or name, as reprise show lists it", false},
	{"set", 0, "K=V", "another member of the task's `with`: runtime=b, sampling.temperature=0, prompt=@FILE; of another task: /do/2/judge:runtime=b", true},
	{"input", 'i', "JSON", "another input of the task: JSON, @FILE, or - for standard input", false},
	{"children", 0, "WORD", "of runs that the run had started: keep (default: their results stand), rerun (begin before the first of them), detach", false},
	{"id", 0, "ID", "the new run's id (default: a new one). Same id and content: the same run", false},
	LABEL,
	BUDGET,
	{"reason", 0, "TEXT", "why; kept in the journal", false},
	{"wait", 'w', NULL, "wait until the run has ended; the exit status is then its outcome", false},
	TIMEOUT,
	END,
};
static const struct option_rule purge_options[] = {
	{"reason", 0, "TEXT", "why (needed); kept in the journal", false},
	{"yes", 'y', NULL, "do not ask", false},
	END,
};
static const struct option_rule pause_options[] = {{"reason", 0, "TEXT", "why; kept in the journal", false}, END};
static const struct option_rule runtime_start_options[] = {
	{"reason", 0, "TEXT", "why; kept in the journal", false}, {"wait", 'w', NULL, "wait until it is ready, or will not be", false}, TIMEOUT, END};
static const struct option_rule runtime_stop_options[] = {
	{"reason", 0, "TEXT", "why; kept in the journal", false}, {"yes", 'y', NULL, "do not ask", false}, {"wait", 'w', NULL, "wait until that is done", false}, TIMEOUT, END};
static const struct option_rule drain_options[] = {{"within", 0, "D", "interrupt what has not finished by then (30s, 5m; default: wait for it, at most 24h)", false}, END};
static const struct option_rule extract_options[] = {
	RUNTIME,
	{"schema", 0, "FILE", "a JSON Schema for the answers: an object with the array `facts` (default: facts of subject, predicate, object, quote)", false},
	{"id", 0, "ID", "the run's id (default: a new one)", false},
	LABEL,
	BUDGET,
	{"no-wait", 0, NULL, "print the run's id and leave", false},
	TIMEOUT,
	END,
};
static const struct option_rule infer_options[] = {
	RUNTIME,
	{"schema", 0, "FILE", "a JSON Schema that the answer has to match", false},
	{"max-tokens", 0, "N", "tokens of the answer at most", false},
	{"temperature", 0, "T", "sampling temperature", false},
	{"top-p", 0, "P", "nucleus sampling", false},
	{"seed", 0, "N", "the sampler's seed", false},
	{"id", 0, "ID", "the run's id (default: a new one)", false},
	LABEL,
	BUDGET,
	TIMEOUT,
	END,
};
static const struct option_rule gate_options[] = {
	{"request", 0, "FILE", "what to ask: {messages or prompt, schema?, sampling?} as JSON or YAML (default: an extraction from a section of ours)", false},
	{"requests", 'n', "N", "identical requests, 2 to 1000 (default 20)", false},
	{"seeds", 0, "N", "further requests with another seed each, 0 to 20 (default 2): a seed that changes nothing is told", false},
	{"phases", 0, "P,…", "measure these as well, each with as many requests: interleaved (another prompt before each), uncached (nothing from the runtime's cache of prefixes; llamacpp, sglang, vllm), withoutSchema, concurrent, reload (before and after; of a launched runtime, or LM Studio's)", false},
	{"concurrent", 0, "N", "so many in flight at once in the concurrent phase, which it asks for; 2 to 64 (default 4)", false},
	{"between", 0, "PROMPT", "ask this between two identical requests, which changes what the runtime's cache holds", true},
	{"id", 0, "ID", "the run's id (default: a new one)", false},
	LABEL,
	BUDGET,
	TIMEOUT,
	END,
};
#define FACT_FILTERS                                                                        \
	{"run", 0, "RUN", "of this run", false},                                           \
	{"runtime", 'r', "NAME", "by this runtime", false},                                \
	{"class", 0, "CLASS", "of this reproducibility class", false},                     \
	{"rejected", 0, NULL, "also those that failed a check", false}
static const struct option_rule fact_list_options[] = {
	FACT_FILTERS,
	{"document", 0, "DIGEST", "from this document", false},
	{"workflow", 'w', "NS/NAME", "by this workflow", false},
	{"limit", 'n', "N", "at most N facts (default 100)", false},
	{"all", 'a', NULL, "all of them", false},
	END,
};
static const struct option_rule fact_verify_options[] = {
	FACT_FILTERS,
	{"all", 'a', NULL, "all facts", false},
	TRUST,
	{"fact", 0, "FILE", "with FILE: the fact as JSON, to compare with the signed subject", false},
	{"entry", 0, "FILE", "with FILE: the journal's entry (reprise fact export FACT --format entry)", false},
	{"proof", 0, "FILE", "with FILE and --entry: the inclusion proof (reprise fact export FACT --format proof)", false},
	{"document", 0, "FILE", "with FILE: the document; with --run or --all: a digest to filter by", false},
	{"section", 0, "FILE", "with FILE: the section", false},
	{"prompt", 0, "FILE", "with FILE: the prompt's template", false},
	{"schema", 0, "FILE", "with FILE: the schema", false},
	{"request", 0, "FILE", "with FILE: the request's body", false},
	{"response", 0, "FILE", "with FILE: the answer's body", false},
	{"verbose", 'v', NULL, "every check of every fact", false},
	END,
};
static const struct option_rule fact_export_options[] = {
	FACT_FILTERS,
	{"document", 0, "DIGEST", "from this document", false},
	{"format", 0, "FORMAT", "dsse (envelopes, one a line; the default), jsonl or csv; of one FACT also proof (.tlog-proof) or entry (the journal entry's bytes)", false},
	END,
};
static const struct option_rule journal_backup_options[] = {{"cancel", 0, NULL, "end the one that is under way", false}, END};
static const struct option_rule journal_restore_options[] = {
	{"checkpoint", 0, "FILE", "a known checkpoint: the copy must reach it", true},
	{"original-is-gone", 0, NULL, "no checkpoint is known, and nobody else continues this log", false},
	{"new-log", 0, NULL, "keep the copy to be read; the next start begins another log that names where it ended", false},
	{"yes", 'y', NULL, "a journal that is there is kept aside", false},
	END,
};
static const struct option_rule journal_verify_options[] = {
	TRUST,
	{"trusted", 0, "FILE", "a checkpoint that you kept", true},
	END,
};
static const struct option_rule key_generate_options[] = {{"purpose", 'p', "PURPOSE", "fact, log or root", false}, END};
static const struct option_rule key_export_options[] = {
	{"purpose", 'p', "PURPOSE", "fact (the default), log or root", false},
	{"format", 0, "FORMAT", "pem (the default), vkey (a log's) or ring (an unsigned key ring)", false},
	END,
};
static const struct option_rule schedule_pause_options[] = {{"reason", 0, "TEXT", "why; kept in the journal", false}, END};
static const struct option_rule config_options[] = {{"effective", 0, NULL, "what is in force, with its origin", false}, END};
#define BENCH                                                                           \
	{"runs", 'n', "N", "number of runs", false},                                    \
	{"reprised", 0, "FILE", "the daemon (default: beside this program)", false}
static const struct option_rule bench_overhead_options[] = {
	BENCH,
	{"sim", 0, "FILE", "the simulated runtime (default: beside this program)", false},
	{"no-op", 0, NULL, "one `set` task instead of an inference", false},
	END,
};
static const struct option_rule bench_memory_options[] = {BENCH, END};
static const struct option_rule bench_recovery_options[] = {BENCH, {"in-flight", 0, NULL, "runs that wait for an answer of a simulated runtime, instead of sleepers", false}, END};
static const struct option_rule bench_expressions_options[] = {{"reprised", 0, "FILE", "the daemon (default: beside this program)", false}, END};

const struct verb verbs[] = {
	{"submit", "DEFINITION", "Start a run", "DEFINITION is a file (YAML or JSON, - for standard input), or NAMESPACE/NAME[:VERSION] of a registered one. "
	 "`file:` resources of a file are read here, relative to it, and sent along.", "reprise submit hello.yaml --input '{\"name\": \"Ada\"}' --wait", 1, 1, submit_options, command_submit},
	{"list", "", "List runs, newest first", NULL, "reprise list --status faulted -o ids", 0, 0, list_options, command_list},
	{"count", "", "Count runs", NULL, "reprise count --status running", 0, 0, count_options, command_count},
	{"show", "RUN", "Show one run: its tasks, input, output, error", NULL, "reprise show 01JC3V0Q9T5Z8W2N4M6K7H1B3D -o json", 1, 1, show_options, command_show},
	{"result", "RUN", "Print what a run gave", NULL, "reprise result 01JC3V0Q9T5Z8W2N4M6K7H1B3D --wait", 1, 1, result_options, command_result},
	{"events", "RUN", "Print a run's journal entries", "One entry a line, with -o json too.", "reprise events 01JC3V0Q9T5Z8W2N4M6K7H1B3D -f", 1, 1, events_options, command_events},
	{"tokens", "RUN", "Show what the models of a run write, as they write it", "The daemon keeps the texts in memory: of attempts under way, and of those that ended until others need the room. An attempt that fails and is begun anew "
	 "begins its text anew.", "reprise tokens 01JC3V0Q9T5Z8W2N4M6K7H1B3D -f", 1, 1, tokens_options, command_tokens},
	{"cancel", "RUN…", "Cancel runs; - reads ids from standard input", NULL, "reprise list --status running -o ids | reprise cancel - --reason 'wrong input'", 1, COMMAND_IDS_MAX,
	 cancel_options, command_cancel},
	{"kill", "RUN…", "End runs at once, without letting tasks clean up", NULL, "reprise kill 01JC3V0Q9T5Z8W2N4M6K7H1B3D --reason 'stuck'", 1, COMMAND_IDS_MAX, cancel_options, command_kill},
	{"retry", "RUN…", "Go on with faulted runs from where they failed; - reads ids from standard input",
	 "What had finished is not done again. With --wait the exit status is the run's outcome.", "reprise list --status faulted -o ids | reprise retry -", 1, COMMAND_IDS_MAX, retry_options,
	 command_retry},
	{"fork", "RUN", "Start the same run once more, from one of its tasks on", "The new run goes on from the state that the run, ended or open, had when it began that task, with what is set. The run itself is "
	 "not touched; what was under way beside the task is begun again.", "reprise fork 01JC3V0Q9T5Z8W2N4M6K7H1B3D --from /do/1/ask@1 --set runtime=other --wait", 1, 1, fork_options, command_fork},
	{"purge", "RUN…", "Remove runs that have ended; - reads ids from standard input", "Does at once what retention does later: the run leaves the lists and its values are deleted. Its facts are kept if "
	 "the daemon's `retention.keepFacts` says so, and its id is not used again. All of up to 256 runs go, or none.",
	 "reprise purge 01JC3V0Q9T5Z8W2N4M6K7H1B3D --reason 'asked to' --yes", 1, COMMAND_IDS_MAX, purge_options, command_purge},
	{"pause", "RUN…", "Suspend runs: nothing new is begun until they are resumed", "What is in flight finishes and is recorded; timers that come due and events wait.",
	 "reprise list --status running -o ids | reprise pause - --reason 'the runtime is being moved'", 1, COMMAND_IDS_MAX, pause_options, command_pause},
	{"resume", "RUN…", "Let suspended runs go on", "A run that was put into quarantine is tried again.", "reprise list --status suspended -o ids | reprise resume -", 1, COMMAND_IDS_MAX,
	 pause_options, command_resume},
	{"replay", "RUN… | --all", "Decide runs again from the journal, no model called", "Exit status: 20 when a run's decisions differ from its journal.",
	 "reprise replay 01JC3V0Q9T5Z8W2N4M6K7H1B3D", 0, COMMAND_IDS_MAX, replay_options, command_replay},
	{"overhead", "[RUN]", "Show where the time outside the activities went", NULL, "reprise overhead 01JC3V0Q9T5Z8W2N4M6K7H1B3D", 0, 1, overhead_options, command_overhead},
	{"extract", "DOCUMENT", "Extract grounded, signed facts from a document", "DOCUMENT is a Markdown or plain-text file, - for standard input. Each of its sections is one request; the daemon finds each fact's quote "
	 "in the document, and the table shows its line.", "reprise extract notes.md --runtime extractor", 1, 1, extract_options, command_extract},
	{"infer", "PROMPT", "Ask a runtime one question, durably", "PROMPT is a text, @FILE, or - for standard input.", "reprise infer 'Say hello.' --runtime extractor", 1, 1, infer_options, command_infer},
	{"gate", "RUNTIME", "Measure whether a runtime repeats itself", "Asks the same 20 times, one request at a time with nothing else in flight, and says what that is worth: the class, and how often another answer may still "
	 "come. Facts of the same configuration carry it from then on. Exit status: 24 when there was more than one answer, 1 when the gate is inconclusive.", "reprise gate extractor -n 60", 1, 1, gate_options, command_gate},
	{"document erase", "DIGEST", "Erase a document, or any other value, by its digest", "Every stored copy goes; the digest stays, and the log can be proven as before. What other values say of it, a request that quotes it, say, "
	 "has a digest of its own.", "reprise document erase sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 --reason 'asked to' --yes", 1, 1, purge_options, command_document_erase},
	{"fact list", "", "List facts in the order in which they were recorded", NULL, "reprise fact list --run 01JC3V0Q9T5Z8W2N4M6K7H1B3D", 0, 0, fact_list_options, command_fact_list},
	{"fact show", "FACT", "Show one fact", "FACT is an id, or a prefix of 12 digits or more that no other id has.", "reprise fact show 3fa4b2c18d90", 1, 1, NULL, command_fact_show},
	{"fact verify", "FACT… | --run RUN | --all | FILE…", "Check facts: signature, source, journal, inclusion",
	 "Everything is checked by this program, not by the daemon. A FILE holds envelopes, one a line or one alone, as `reprise fact export` prints them, and needs no daemon.\n"
	 "Exit status: 0 valid, 22 invalid, 23 journal damaged, 25 malformed, 26 a key is missing.",
	 "reprise fact verify --run 01JC3V0Q9T5Z8W2N4M6K7H1B3D --key fact.pub", 0, COMMAND_IDS_MAX, fact_verify_options, command_fact_verify},
	{"fact export", "[FACT…]", "Print facts as signed envelopes, JSON lines or CSV", NULL, "reprise fact export --run 01JC3V0Q9T5Z8W2N4M6K7H1B3D --format csv > facts.csv", 0, COMMAND_IDS_MAX,
	 fact_export_options, command_fact_export},
	{"journal verify", "[FILE]", "Check the log's tree against every checkpoint",
	 "Checks the daemon's journal; with --data DIR a data folder, with FILE exported entries, one a line, as `reprise journal export` prints them; both without a daemon. FILE needs --log-key.\nExit status: 0 whole, 23 damaged.",
	 "reprise journal verify --trusted checkpoint.kept", 0, 1, journal_verify_options, command_journal_verify},
	{"journal export", "", "Print the journal's entries, one a line", "The bytes that the log's tree is made of, from the first entry to the newest: a file for `reprise journal verify FILE`.",
	 "reprise journal export > journal.jsonl", 0, 0, NULL, command_journal_export},
	{"journal backup", "DEST", "Copy the journal while the daemon works", "DEST is a file on the daemon's machine that is not there yet; it appears when the copy is whole, synced and verified. "
	 "The keys are not in it. A copy is marked as one: a daemon does not start on it, `journal restore` makes a journal of it.", "reprise journal backup /var/backups/reprise-monday.db", 0, 1,
	 journal_backup_options, command_journal_backup},
	{"journal restore", "SRC", "Make a journal of a backup, offline", "No daemon may hold the folder. Nothing is changed before the copy was found whole and not behind any known checkpoint: the folder's "
	 "`anchor` and journal, and those given. Exit status: 5 a journal is there, 23 the copy is damaged or behind, 26 no checkpoint is known.",
	 "reprise journal restore /var/backups/reprise-monday.db --data /var/lib/reprise --yes", 1, 1, journal_restore_options, command_journal_restore},
	{"journal stats", "", "Show what the journal holds and its sizes", NULL, "reprise journal stats", 0, 0, NULL, command_journal_stats},
	{"journal compact", "", "Take away what is over its time now, and give free pages back", "Retention does the same by itself, a little at a time. A journal that cannot give pages back in steps is written anew once, and the daemon "
	 "takes nothing meanwhile.", "reprise journal compact", 0, 0, NULL, command_journal_compact},
	{"key list", "", "List the daemon's public keys", NULL, "reprise key list", 0, 0, NULL, command_key_list},
	{"key generate", "FILE", "Make a key: FILE and FILE.pub", "Offline. The secret goes to FILE (PKCS#8 PEM, mode 0600), which must not exist yet.",
	 "reprise key generate --purpose fact fact.pem", 1, 1, key_generate_options, command_key_generate},
	{"key export", "", "Print a public key of the daemon, or a ring of them", "Prints the key of one purpose: fact, unless --purpose names another (with --format vkey: log). --format ring prints all of them.", "reprise key export --purpose log --format vkey", 0, 0, key_export_options, command_key_export},
	{"definition add", "FILE", "Register a definition",
	 "FILE is YAML or JSON, - for standard input. A name and version stand for one content for ever. A definition with `schedule` starts by itself from now on.",
	 "reprise definition add hello.yaml", 1, 1, NULL, command_definition_add},
	{"definition list", "", "List registered definitions", NULL, "reprise definition list", 0, 0, NULL, command_definition_list},
	{"definition show", "NAMESPACE/NAME[:VERSION]", "Show a registered definition", NULL, "reprise definition show reprise/extract:1.0.0", 1, 1, NULL, command_definition_show},
	{"definition validate", "FILE…", "Check definitions, offline", "Prints every problem with file, line and column. Exit status: 1 when one of them cannot be run.",
	 "reprise definition validate *.yaml", 1, COMMAND_IDS_MAX, NULL, command_definition_validate},
	{"send", "EVENT", "Send a CloudEvent", "EVENT is JSON, @FILE (JSON or YAML), or - for standard input. What is left out of specversion, id, source and time is filled in; an event whose source and id are known "
	 "already is not taken twice.", "reprise send '{\"type\": \"com.example.order.paid\", \"data\": {\"order\": 7}}'", 1, 1, NULL, command_send_event},
	{"schedule list", "", "List schedules: workflows that start by themselves", "A definition with `schedule` makes one when it is added.", "reprise schedule list", 0, 0, NULL,
	 command_schedule_list},
	{"schedule show", "ID", "Show one schedule", NULL, "reprise schedule show reports.nightly", 1, 1, NULL, command_schedule_show},
	{"schedule pause", "ID", "Stop its ticks; those that come due meanwhile are skipped", NULL, "reprise schedule pause reports.nightly --reason 'moving house'", 1, 1,
	 schedule_pause_options, command_schedule_pause},
	{"schedule resume", "ID", "Let it tick again, from the next time on", NULL, "reprise schedule resume reports.nightly", 1, 1, NULL, command_schedule_resume},
	{"schedule trigger", "ID", "Start one run now and print its id", NULL, "reprise schedule trigger reports.nightly", 1, 1, NULL, command_schedule_trigger},
	{"runtime list", "", "List runtimes", NULL, "reprise runtime list", 0, 0, NULL, command_runtime_list},
	{"runtime start", "NAME", "Start a runtime that the configuration has `launch` for, or load the model of one that loads over its API (LM Studio)", "Also one that was refused, or given up after too many starts.", "reprise runtime start extractor --wait", 1, 1, runtime_start_options,
	 command_runtime_start},
	{"runtime stop", "NAME", "Stop it, or unload its model; attempts wait until it is started again", "Those in flight there are tried again.", "reprise runtime stop extractor --yes --reason 'a new driver'", 1, 1, runtime_stop_options,
	 command_runtime_stop},
	{"runtime reload", "NAME", "Stop it and start it anew, or unload its model and load it with the same settings", NULL, "reprise runtime reload extractor --yes --wait", 1, 1, runtime_stop_options, command_runtime_reload},
	{"runtime show", "NAME", "Show one runtime; when the daemon launches it, with the last lines of its log", NULL, "reprise runtime show extractor", 1, 1, NULL, command_runtime_show},
	{"runtime probe", "NAME", "Ask a runtime who it is, now", "Prints its configuration record: each field, how it is known and from where, and what cannot be known. Where the model is loaded it is also "
	 "asked for a token per sampling field, to find those that it takes no notice of.", "reprise runtime probe extractor", 1, 1, NULL, command_runtime_probe},
	{"provenance show", "DIGEST", "Show a configuration record", NULL, "reprise provenance show sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", 1, 1, NULL,
	 command_provenance_show},
	{"provenance diff", "DIGEST DIGEST", "Show what differs between two configuration records", "Field by field, with the values and how each is known.", "reprise provenance diff sha256:9f86d081… sha256:60303ae2…", 2, 2, NULL,
	 command_provenance_diff},
	{"config show", "", "Show the daemon's configuration", NULL, "reprise config show --effective", 0, 0, config_options, command_config_show},
	{"doctor", "", "Check the data folder, its disk, the journal and this machine", "Each line says ok, warn or fail, and what to do. Works with the daemon down. Exit status: 1 when one says fail.",
	 "reprise doctor --data /var/lib/reprise", 0, 0, NULL, command_doctor},
	{"drain", "", "Let what is under way finish, take nothing new, then stop the daemon", "Runs go on after the next start. What is interrupted is tried again then.", "reprise drain --within 5m", 0, 0,
	 drain_options, command_drain},
	{"bench overhead", "", "Measure the time outside the activities on this machine", "Starts a daemon and a simulated runtime of its own in a scratch folder (--data, $TMPDIR or /tmp) and stops them.",
	 "reprise bench overhead --runs 200 --data /var/tmp", 0, 0, bench_overhead_options, command_bench_overhead},
	{"bench memory", "", "Measure the daemon's memory over many runs", NULL, "reprise bench memory --runs 100000", 0, 0, bench_memory_options, command_bench_memory},
	{"bench recovery", "", "Measure a restart after kill -9 with many open runs", "Runs that sleep for a day or (--in-flight) wait for an answer, in a daemon of its own in a scratch folder (--data, $TMPDIR or /tmp).", "reprise bench recovery --runs 100000", 0, 0, bench_recovery_options, command_bench_recovery},
	{"bench journal", "", "Measure the bytes that runs take, and leave, in the journal", "With a daemon of its own in a scratch folder, whose retention counts seconds in the place of days.",
	 "reprise bench journal --runs 30000", 0, 0, bench_memory_options, command_bench_journal},
	{"bench expressions", "", "Measure evaluations, decisions and registration", "The helper program's round trip, decisions of plain paths, and the registration of definitions with a daemon of its own in a scratch folder.",
	 "reprise bench expressions", 0, 0, bench_expressions_options, command_bench_expressions},
	{"version", "", "Show the versions of command line and daemon", NULL, "reprise version -o json", 0, 0, NULL, command_version},
};
const size_t verb_count = COUNT_OF(verbs);
