/* torture io|memory|power [--every N] [--seed S] [--scenario NAME]: fail the n-th operation of the disk, or piece of memory, for every n
 * (or every N-th, the first one by the seed) until the scenario passes untouched; or cut the power behind every operation. Each fault in a
 * process of its own; each time the journal is looked at afterwards as a daemon would, with no fault. Prints what it did, and fails when
 * that was too little. Start at torture_one(). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/memory.h"
#include "store/internal.h"
#include "tests/torture/torture.h"
#include "workflow/base/check.h"
#include "workflow/base/coverage.h"
#include "workflow/base/log.h"

enum { CHILD_SECONDS = 120, FAILURES_SHOWN = 10, LIES_EVERY = 11, LOSSES_ENOUGH = 5 };

static struct {
	uint64_t every, seed;
	const char *scenario;
} options = {.every = 1, .seed = 1};
static char scratch[PATH_LEN];
static struct ledger *ledger, *base_ledger;
static unsigned failures;

static const struct story {
	const char *name, *base; /* the folder it begins with; NULL: none */
	scenario run;
	uint64_t sparser; /* of a sample every so many times as sparse: they are long, and meet what others meet as well */
} stories[] = {
	{"new", NULL, scenario_new, 1},
	{"work", "closed", scenario_work, 1},
	{"recover", "dirty", scenario_recover, 1},
	{"read", "dirty", scenario_read, 1},
	{"retain", "full", scenario_retain, 5},
	{"backup", "closed", scenario_backup, 3},
	{"restore", "copied", scenario_restore, 3},
	{"migrate", "earlier", scenario_migrate, 3},
};

static void print_path(char path[PATH_LEN], const char *name)
{
	CHECK(snprintf(path, PATH_LEN, "%s/%s", scratch, name) < PATH_LEN);
}

static void fail(const char *what, const char *why)
{
	if (failures++ < FAILURES_SHOWN)
		printf("not ok %s: %s\n", what, why);
	fflush(stdout);
}

/* --- one fault, in a child ----------------------------------------------------------------------------------------------------- */

/* What it said on its standard error, cut short. */
static int run_child(scenario run, const char *folder, char *said)
{
	char path[PATH_LEN];
	int status, descriptor;
	ssize_t len;
	pid_t pid;

	print_path(path, "stderr");
	descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(descriptor >= 0);
	fflush(stdout);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		bool whole;

		dup2(descriptor, STDERR_FILENO);
		alarm(CHILD_SECONDS);
		atomic_store(&faults->armed, true);
		whole = run(folder, ledger);
		atomic_store(&faults->armed, false);
		COVERAGE_KEEP();
		_exit(whole ? END_CLEAN : END_REFUSED);
	}
	while (waitpid(pid, &status, 0) < 0)
		CHECK(errno == EINTR);
	atomic_store(&faults->armed, false);
	len = pread(descriptor, said, WHY_LEN - 1, 0);
	said[len > 0 ? len : 0] = '\0';
	close(descriptor);
	return status;
}

/* A process may end by itself with a clean or an open end, or where memory of ours or of a library is missing by the stop that says so. */
static bool is_clean_end(int status, enum fault fault, const char *said, unsigned *stops)
{
	if (WIFEXITED(status) && (WEXITSTATUS(status) == END_CLEAN || (WEXITSTATUS(status) == END_REFUSED && atomic_load(&faults->failed) > 0)))
		return true;
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || atomic_load(&faults->failed) == 0)
		return false;
	if (fault != FAULT_OWN_MEMORY && fault != FAULT_LIBRARY_MEMORY)
		return false;
	if (strstr(said, "reprise: stopped: ") == NULL || (fault == FAULT_OWN_MEMORY && strstr(said, "reprise: stopped: out of memory") == NULL))
		return false;
	(*stops)++;
	return true;
}

struct sum {
	uint64_t faults, refused, stops, acknowledged, upkeep;
	uint64_t at[OPERATION_COUNT];
};

/* False: the fault was not reached, the scenario passed untouched. */
static bool torture_one(const struct story *story, enum fault fault, bool persistent, uint64_t at, struct sum *sum)
{
	char folder[PATH_LEN], base[PATH_LEN], said[WHY_LEN], why[WHY_LEN], what[128];
	unsigned stops = 0;
	bool was_hit;
	int status;

	print_path(folder, "data");
	folder_remove(folder);
	if (story->base != NULL) {
		print_path(base, story->base);
		folder_copy(base, folder);
	}
	*ledger = *base_ledger;
	faults_plan(fault, persistent, at);
	disk_watch(folder);
	status = run_child(story->run, folder, said);
	disk_watch(NULL);
	was_hit = atomic_load(&faults->failed) > 0;
	snprintf(what, sizeof(what), "%s, %s %llu%s", story->name, fault_name(fault), (unsigned long long)at, persistent ? " and all later ones" : "");
	if (!is_clean_end(status, fault, said, &stops)) {
		snprintf(why, sizeof(why), "%s %d: %.800s", WIFSIGNALED(status) ? "signal" : "status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), said);
		fail(what, why);
	}
	for (enum operation i = 0; i < OPERATION_COUNT; i++)
		sum->at[i] += atomic_load(&faults->failed_at[i]) > 0;
	sum->faults += was_hit;
	sum->stops += stops;
	sum->refused += WIFEXITED(status) && WEXITSTATUS(status) == END_REFUSED;
	sum->upkeep += ledger->upkeep - base_ledger->upkeep;
	for (unsigned i = 0; i < ledger->count; i++)
		sum->acknowledged += ledger->runs[i].outcome == OUTCOME_ACKNOWLEDGED;
	faults_plan(FAULT_NONE, false, 0);
	if (!journal_is_good(folder, ledger, why))
		fail(what, why);
	return was_hit;
}

static uint64_t spacing(const struct story *story, uint64_t every)
{
	return every > 1 ? every * story->sparser : 1;
}

static void torture(const struct story *story, enum fault fault, bool persistent, uint64_t every, struct sum *all)
{
	struct sum sum = {0};
	uint64_t step = spacing(story, every), at = options.seed % step;

	while (torture_one(story, fault, persistent, at, &sum))
		at += step;
	printf("%s: %s%s: %llu faults, %llu did not open, %llu stopped, %llu acknowledged, then one untouched\n", story->name, fault_name(fault),
	       persistent ? " from the n-th on" : "", (unsigned long long)sum.faults, (unsigned long long)sum.refused, (unsigned long long)sum.stops,
	       (unsigned long long)sum.acknowledged);
	fflush(stdout);
	all->faults += sum.faults;
	all->refused += sum.refused;
	all->stops += sum.stops;
	all->acknowledged += sum.acknowledged;
	all->upkeep += sum.upkeep;
	for (enum operation i = 0; i < OPERATION_COUNT; i++)
		all->at[i] += sum.at[i];
}

/* --- what the scenarios begin with -------------------------------------------------------------------------------------------------- */

static bool in_child(scenario run, const char *folder)
{
	char said[WHY_LEN];
	int status;

	faults_plan(FAULT_NONE, false, 0);
	status = run_child(run, folder, said);
	if (WIFEXITED(status) && WEXITSTATUS(status) == END_CLEAN)
		return true;
	fail("begin", said);
	return false;
}

/* What a story begins with, and what is known of it: made once, in processes of their own. */
static struct base {
	const char *name;
	scenario make; /* NULL: an earlier build has made it */
	const char *from; /* NULL: from nothing */
	bool is_made;
	struct ledger ledger;
} bases[] = {
	{"closed", scenario_new, NULL, false, {0}},
	{"dirty", scenario_dirty, "closed", false, {0}}, /* left with its log as it was */
	{"full", scenario_fill, NULL, false, {0}},
	{"copied", scenario_backup, "closed", false, {0}},
	{"earlier", NULL, NULL, false, {0}},
};

/* Its ledger is that of what follows, too. */
static void take_base(const char *name)
{
	struct base *base = bases;
	char folder[PATH_LEN], from[PATH_LEN];

	memset(ledger, 0, sizeof(*ledger));
	memset(base_ledger, 0, sizeof(*base_ledger));
	if (name == NULL)
		return;
	while (strcmp(base->name, name) != 0)
		CHECK(++base < bases + COUNT_OF(bases));
	if (!base->is_made) {
		print_path(folder, name);
		if (base->from != NULL) {
			take_base(base->from);
			print_path(from, base->from);
			folder_copy(from, folder);
		}
		if (base->make == NULL)
			make_earlier_journal(folder, ledger);
		else
			in_child(base->make, folder);
		base->ledger = *ledger;
		base->is_made = true;
	}
	*base_ledger = *ledger = base->ledger;
}

static bool is_asked_for(const struct story *story)
{
	return options.scenario == NULL || strcmp(options.scenario, story->name) == 0;
}

/* Never passes idle: so much at least, for a run over every n; less for one that skips. */
static void demand(const char *what, uint64_t got, uint64_t least)
{
	char why[96];

	if (least == 0 || options.scenario != NULL || got >= least)
		return;
	snprintf(why, sizeof(why), "only %llu, expected %llu at least", (unsigned long long)got, (unsigned long long)least);
	fail(what, why);
}

static void torture_io(void)
{
	static const struct {
		enum fault fault;
		bool persistent;
	} modes[] = {{FAULT_EIO, false}, {FAULT_EIO, true}, {FAULT_FULL, false}, {FAULT_FULL, true}, {FAULT_SHORT, false}, {FAULT_SHORT, true}, {FAULT_BUSY, false}};
	struct sum all = {0};

	for (size_t i = 0; i < COUNT_OF(stories); i++) {
		if (is_asked_for(&stories[i]))
			take_base(stories[i].base);
		for (size_t mode = 0; mode < COUNT_OF(modes) && is_asked_for(&stories[i]); mode++)
			torture(&stories[i], modes[mode].fault, modes[mode].persistent, options.every, &all);
	}
	printf("io: %llu faults", (unsigned long long)all.faults);
	for (enum operation i = 0; i < OPERATION_MEMORY; i++) {
		printf(", %s %llu", operation_name(i), (unsigned long long)all.at[i]);
		if (options.every == 1)
			demand(operation_name(i), all.at[i], 1);
	}
	printf("\n");
	demand("faults of the disk", all.faults, 1500 / options.every);
	demand("acknowledged beside faults", all.acknowledged, 1000 / options.every);
}

/* SQLite's are many thousands; of the others, few, always each, or in a long story every few. */
static void torture_memory(void)
{
	static const enum fault kinds[] = {FAULT_SQLITE_MEMORY, FAULT_OWN_MEMORY, FAULT_LIBRARY_MEMORY};
	struct sum all = {0};

	for (size_t i = 0; i < COUNT_OF(stories); i++) {
		if (is_asked_for(&stories[i]))
			take_base(stories[i].base);
		for (size_t kind = 0; kind < COUNT_OF(kinds) && is_asked_for(&stories[i]); kind++) {
			if (kinds[kind] == FAULT_LIBRARY_MEMORY && !memory_reaches_libraries)
				continue;
			torture(&stories[i], kinds[kind], false, kinds[kind] == FAULT_SQLITE_MEMORY ? options.every : stories[i].sparser, &all);
			if (kinds[kind] == FAULT_SQLITE_MEMORY)
				torture(&stories[i], kinds[kind], true, options.every, &all);
		}
	}
	printf("memory: %llu faults, %llu stops\n", (unsigned long long)all.faults, (unsigned long long)all.stops);
	demand("faults of memory", all.faults, 5000 / options.every);
	demand("stops", all.stops, memory_reaches_libraries ? 100 : 50);
}

/* --- power ------------------------------------------------------------------------------------------------------------------------ */

struct cuts {
	uint64_t cuts, at_syncs, bad, acknowledged;
};

/* What a lying disk leaves may well stop a process. */
static bool is_good_in_child(const char *folder, const struct ledger *then)
{
	char why[WHY_LEN];
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		bool good;

		alarm(CHILD_SECONDS);
		CHECK(freopen("/dev/null", "w", stderr) != NULL);
		good = journal_is_good(folder, then, why);
		COVERAGE_KEEP();
		_exit(!good);
	}
	while (waitpid(pid, &status, 0) < 0)
		CHECK(errno == EINTR);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* One cut; true: the journal is good. */
static bool cut_one(enum cut cut, uint64_t seed, bool told_lie, struct cuts *cuts, char *why)
{
	char folder[PATH_LEN], data[PATH_LEN + 8];
	bool good;

	/* The shapes are known from the end on, what was acknowledged from the record. */
	struct ledger then = *ledger;
	for (unsigned i = 0; i < then.count; i++) {
		if (i >= base_ledger->count)
			then.runs[i].outcome = OUTCOME_UNKNOWN;
		if (then.runs[i].removal == REMOVAL_DONE)
			then.runs[i].removal = REMOVAL_ASKED;
		if (then.runs[i].erasure == REMOVAL_DONE)
			then.runs[i].erasure = REMOVAL_ASKED;
	}
	then.signed_size = base_ledger->signed_size;
	then.copied = base_ledger->copied;
	print_path(folder, "cut");
	folder_remove(folder);
	recording_cut(cut, seed, folder, &then);
	snprintf(data, sizeof(data), "%s/data", folder);
	for (unsigned i = 0; i < then.count; i++)
		cuts->acknowledged += then.runs[i].outcome == OUTCOME_ACKNOWLEDGED;
	good = told_lie ? is_good_in_child(data, &then) : journal_is_good(data, &then, why);
	cuts->cuts++;
	cuts->bad += !good;
	return good;
}

static void cut_all(const struct story *story, enum lie lie, struct cuts *cuts)
{
	uint64_t n = 0, every = spacing(story, lie != LIE_NONE && options.every < LIES_EVERY ? LIES_EVERY : options.every);
	char why[WHY_LEN], what[128];
	bool is_sync;

	recording_rewind(lie);
	while (recording_step(&is_sync) && (lie == LIE_NONE || cuts->bad < LOSSES_ENOUGH)) {
		n++;
		if (every > 1 && !(is_sync && lie == LIE_NONE) && (n + options.seed) % every != 0)
			continue;
		/* Where nothing is pending all ways to cut are one. */
		for (enum cut cut = 0; cut < (recording_pending() == 0 ? 1 : CUT_COUNT); cut++) {
			cuts->at_syncs += is_sync;
			if (cut_one(cut, options.seed * 1000003 + n * CUT_COUNT + cut, lie != LIE_NONE, cuts, why) || lie != LIE_NONE)
				continue;
			snprintf(what, sizeof(what), "%s, power cut behind operation %llu, way %d, seed %llu", story->name, (unsigned long long)n, (int)cut,
				 (unsigned long long)options.seed);
			fail(what, why);
		}
	}
}

static void torture_power(void)
{
	static const char *const lies[] = {"none", "the log's", "the database's", "folders'"};
	uint64_t losses[LIE_COUNT] = {0};
	struct cuts all = {0};

	for (size_t i = 0; i < COUNT_OF(stories); i++) {
		const struct story *story = &stories[i];
		char root[PATH_LEN], folder[PATH_LEN], base[PATH_LEN];
		struct cuts cuts = {0};

		if (!is_asked_for(story) || story->run == scenario_read)
			continue;
		take_base(story->base);
		print_path(root, "live");
		folder_remove(root);
		CHECK(mkdir(root, 0700) == 0);
		CHECK(snprintf(folder, sizeof(folder), "%s/data", root) < PATH_LEN);
		if (story->base != NULL) {
			print_path(base, story->base);
			folder_copy(base, folder);
		}
		faults_plan(FAULT_NONE, false, 0);
		recording_start(root);
		disk_watch(root);
		CHECK(story->run(folder, ledger));
		disk_watch(NULL);
		recording_stop();
		cut_all(story, LIE_NONE, &cuts);
		printf("%s: %llu cuts, %llu of them right behind a sync, %llu bad\n", story->name, (unsigned long long)cuts.cuts, (unsigned long long)cuts.at_syncs,
		       (unsigned long long)cuts.bad);
		fflush(stdout);
		all.cuts += cuts.cuts;
		all.at_syncs += cuts.at_syncs;
		all.acknowledged += cuts.acknowledged;
		/* With a disk that lies about its syncs the same test has to find what is lost. */
		for (enum lie lie = LIE_NONE + 1; lie < LIE_COUNT; lie++) {
			struct cuts lied = {0};

			if (losses[lie] < LOSSES_ENOUGH)
				cut_all(story, lie, &lied);
			losses[lie] += lied.bad;
		}
	}
	printf("power: %llu cuts, %llu right behind a sync; losses found when syncs are lies:", (unsigned long long)all.cuts, (unsigned long long)all.at_syncs);
	for (enum lie lie = LIE_NONE + 1; lie < LIE_COUNT; lie++) {
		printf(" %s %llu", lies[lie], (unsigned long long)losses[lie]);
		demand(lies[lie], losses[lie], 1);
	}
	printf("\n");
	demand("cuts", all.cuts, 2000 / options.every);
	demand("cuts behind a sync", all.at_syncs, 100);
	demand("acknowledged before a cut", all.acknowledged, 1000 / options.every);
}

static void *shared(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	return memory;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "", *parent = getenv("TMPDIR");

	for (int i = 2; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--every") == 0)
			options.every = strtoull(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--seed") == 0)
			options.seed = strtoull(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--scenario") == 0)
			options.scenario = argv[i + 1];
	}
	if (options.every == 0)
		options.every = 1;
	setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
	memory_give_to_libuv(); /* as main() of the daemon does it */
	log_init(LOG_ERROR, 0);
	faults_set_up();
	memory_set_up();
	connection_set_up_library();
	disk_set_up();
	ledger = shared(sizeof(*ledger));
	base_ledger = shared(sizeof(*base_ledger));
	snprintf(scratch, sizeof(scratch), "%s/reprise-torture-XXXXXX", parent != NULL ? parent : access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	CHECK(mkdtemp(scratch) != NULL);
	if (strcmp(what, "io") == 0)
		torture_io();
	else if (strcmp(what, "memory") == 0)
		torture_memory();
	else if (strcmp(what, "power") == 0)
		torture_power();
	else
		fail("torture", "say io, memory or power");
	folder_remove(scratch);
	printf("%u wrong\n", failures);
	return failures != 0;
}
