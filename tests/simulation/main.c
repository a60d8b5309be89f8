/* reprised-simulate: run seeds of the simulation (simulation.h says what it is). Exit 0: all that is checked held. Exit 1: a seed
 * broke something; it is named, shown and can be repeated. */
#include "tests/simulation/simulation.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/log.h"

enum { SEEDS_THAT_SHOW = 100 };

static _Noreturn void usage(void)
{
	fprintf(stderr, "reprised-simulate --seed N [--seeds COUNT] [--runs K] [--verbose] [--lose-batch N] [--keep FILE]\n"
			"  --seed N        the first seed\n"
			"  --seeds COUNT   run N, N+1 … (1)\n"
			"  --runs K        runs in each (as the seed says)\n"
			"  --verbose       more figures\n"
			"  --lose-batch N  acknowledge the N-th commit and forget it: the checks must notice\n"
			"  --keep FILE     write each run that ended, with all that its replay needs, as a line of JSON (tests/journals)\n");
	exit(2);
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t value = text ? strtoull(text, &end, 10) : 0;

	if (!text || !*text || *end)
		usage();
	return value;
}

/* What has to have happened, and how often in a hundred seeds at least: a simulation in which nothing goes wrong shows nothing. */
static bool all_happened(const struct counters *sum, uint64_t seeds)
{
	const struct {
		const char *what;
		uint64_t times;
		unsigned least;
	} figures[] = {
		{"runs that ended", sum->ended, 1500}, {"loads of runs", sum->loads, 2000}, {"snapshots", sum->snapshots, 1000},
		{"commits", sum->commits, 20000}, {"crashes", sum->crashes, 400}, {"crashes that took unsynced writes away", sum->dropped, 200}, {"crashes in the middle of a commit", sum->in_commit, 100},
		{"commits in doubt that were there", sum->kept_commits, 10}, {"crashes while the journal opens", sum->in_open, 10}, {"retries of calls", sum->retries, 1000}, {"full disks", sum->full, 20},
		{"refusals for want of room", sum->full_refused, 200}, {"appends that waited for room", sum->full_waited, 2}, {"answers after their cancellation", sum->late, 20},
		{"answers to attempts before a crash", sum->stale, 50}, {"answers given twice", sum->doubled, 50}, {"attempts that say what they spent", sum->spent, 300}, {"runs with a budget", sum->budgets, 300}, {"calls under one", sum->budget_calls, 1000},
		{"looks at the budget of a run around", sum->budget_shared, 150}, {"waits for room in a budget", sum->budget_waits, 25}, {"turns after such a wait", sum->budget_turns, 12},
		{"calls that a budget refused", sum->budget_refused, 60}, {"runs that their budget ended", sum->budget_ends, 40}, {"retries with a larger one", sum->budgets_raised, 50},
		{"entries of runs taken away", sum->purged, 20}, {"entries of tiles taken away", sum->pruned, 5}, {"journals compared whole", sum->deep_checks, 110},
	};
	bool all = true;

	for (size_t i = 0; i < COUNT_OF(figures); i++) {
		bool enough = figures[i].times * 100 >= figures[i].least * seeds;
		printf("%s: %" PRIu64 "%s\n", figures[i].what, figures[i].times, enough ? "" : ", which is too few");
		all &= enough;
	}
	return all;
}

int main(int argc, char **argv)
{
	uint64_t seed = 0, seeds = 1;
	bool seeded = false;
	struct options options = {0};
	struct counters sum = {0};

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--seed") == 0) {
			seed = number(argv[++i]);
			seeded = true;
		} else if (strcmp(argv[i], "--seeds") == 0) {
			seeds = number(argv[++i]);
		} else if (strcmp(argv[i], "--runs") == 0) {
			options.runs = (unsigned)number(argv[++i]);
		} else if (strcmp(argv[i], "--lose-batch") == 0) {
			options.lose_batch = (unsigned)number(argv[++i]);
		} else if (strcmp(argv[i], "--keep") == 0) {
			if (!argv[++i] || (options.keep = fopen(argv[i], "we")) == NULL)
				usage();
		} else if (strcmp(argv[i], "--verbose") == 0) {
			options.verbose = true;
		} else {
			usage();
		}
	}
	if (!seeded)
		usage();
	log_init(LOG_ERROR, 0);
	journal_set_up();
	for (uint64_t i = 0; i < seeds; i++)
		world_run(seed + i, &options, &sum);
	if (options.keep && fclose(options.keep) != 0) {
		perror("--keep");
		return 1;
	}
	uint64_t evaluated = expressions_close();
	if (seeds >= 20 && evaluated == 0) {
		fprintf(stderr, "%" PRIu64 " seeds, and jq had nothing to evaluate\n", seeds);
		return 1;
	}
	if (seeds >= SEEDS_THAT_SHOW && !all_happened(&sum, seeds))
		return 1;
	if (seeds > 1)
		printf("%" PRIu64 " seeds from %" PRIu64 ", all ok\n", seeds, seed);
	return 0;
}
