/* reprised-simulate: run seeds of the simulation (simulation.h says what it is). Exit 0: all that is checked held. Exit 1: a seed
 * broke something; it is named, shown and can be repeated. */
#include "tests/simulation/simulation.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/log.h"

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

int main(int argc, char **argv)
{
	uint64_t seed = 0, seeds = 1;
	bool seeded = false;
	struct options options = {0};

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
	for (uint64_t i = 0; i < seeds; i++)
		world_run(seed + i, &options);
	if (options.keep && fclose(options.keep) != 0) {
		perror("--keep");
		return 1;
	}
	uint64_t evaluated = expressions_close();
	if (seeds >= 20 && evaluated == 0) {
		fprintf(stderr, "%" PRIu64 " seeds, and jq had nothing to evaluate\n", seeds);
		return 1;
	}
	if (seeds > 1)
		printf("%" PRIu64 " seeds from %" PRIu64 ", all ok\n", seeds, seed);
	return 0;
}
