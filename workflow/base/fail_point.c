/* See fail_point.h. Any thread: what is armed is set once at the start, passes are counted atomically. */
#include "workflow/base/fail_point.h"

#ifdef REPRISE_FAIL_POINTS
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/coverage.h"
#include "workflow/base/log.h"

enum { NAME_MAX_LEN = 63 };

static const struct {
	const char *name;
	bool fails;
} points[] = {
#define FAIL_POINT_ROW(constant, name, fails) {name, fails},
	FAIL_POINTS(FAIL_POINT_ROW)
#undef FAIL_POINT_ROW
};

static int armed = -1; /* which one */
static unsigned long long armed_pass;
static enum error_code armed_code; /* ERR_NONE: kill */
static atomic_ullong passes;
static const char *armed_run; /* ID, or ID:segv */

bool fail_point_pass(enum fail_point point, struct error *error)
{
	if ((int)point != armed || atomic_fetch_add(&passes, 1) + 1 != armed_pass)
		return false;
	if (armed_code == ERR_NONE) {
		COVERAGE_KEEP();
		raise(SIGKILL);
	}
	CHECK(error != NULL); /* the table says that this one can fail */
	error_set(error, armed_code, "fail point %s", points[point].name);
	log_warn(LOG_DAEMON, "%s", error->message); /* it may be gone by the next try and never be heard of */
	return true;
}

int fail_points_arm(const char *text, struct error *error)
{
	char name[NAME_MAX_LEN + 1];
	const char *rest;
	size_t len;

	if (text == NULL)
		return 0;
	len = strcspn(text, ":");
	if (len > NAME_MAX_LEN)
		return error_set(error, ERR_INVALID, "REPRISE_FAIL_POINT=%s: a name has at most %d characters", text, NAME_MAX_LEN);
	memcpy(name, text, len);
	name[len] = '\0';
	armed_pass = 1;
	armed_code = ERR_NONE;
	for (size_t i = 0; i < COUNT_OF(points); i++)
		if (strcmp(points[i].name, name) == 0)
			armed = (int)i;
	if (armed < 0)
		return error_set(error, ERR_INVALID, "REPRISE_FAIL_POINT=%s: there is no such point; reprised --fail-points lists them", text);
	rest = text + len;
	if (*rest == ':') {
		char *end;

		armed_pass = strtoull(rest + 1, &end, 10);
		rest = end;
	}
	if (strcmp(rest, ":error") == 0)
		armed_code = ERR_IO;
	else if (strcmp(rest, ":full") == 0)
		armed_code = ERR_FULL;
	else if (*rest != '\0' && strcmp(rest, ":kill") != 0)
		armed_pass = 0;
	if (armed_pass == 0 || (armed_code != ERR_NONE && !points[armed].fails))
		return error_set(error, ERR_INVALID, "REPRISE_FAIL_POINT=%s: expected NAME[:N[:kill|error|full]], the last two where the point can fail", text);
	return 0;
}

void fail_point_arm_run(const char *text)
{
	armed_run = text;
}

void fail_point_run(const char *id)
{
	size_t len = strlen(id);

	if (armed_run == NULL || strncmp(armed_run, id, len) != 0)
		return;
	CHECK(armed_run[len] != '\0');
	if (strcmp(armed_run + len, ":segv") == 0)
		raise(SIGSEGV);
}

void fail_points_print(FILE *out)
{
	for (size_t i = 0; i < COUNT_OF(points); i++)
		fprintf(out, "%s%s\n", points[i].name, points[i].fails ? " error full" : "");
}
#endif
