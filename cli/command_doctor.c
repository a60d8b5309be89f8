/* reprise doctor: what would keep a daemon from working on this machine and data folder, each with what to do. Works with the daemon down;
 * nothing is changed but a scratch file that is written, timed and removed. One function per check; start at `checks`. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/jq.h"
#include "store/store.h"
#include "workflow/base/check.h"

enum {
	DOCTOR_SYNCS = 16, /* flushes that are timed */
	DOCTOR_SYNC_SLOW_US = 50000, /* a run pays two of them */
	DOCTOR_FILES_MIN = 4096, /* open files; each client takes one */
	DOCTOR_CLOCK_MS = 60000, /* so far a file's time may lie ahead of the clock */
	DOCTOR_ASK_MS = 3000, /* for the daemon's answers */
	DOCTOR_CHECKS_MAX = 64,
};
static const double MIB = 1024.0 * 1024;

enum verdict { VERDICT_OK, VERDICT_WARN, VERDICT_FAIL };
static const char *const verdicts[] = {[VERDICT_OK] = "ok", [VERDICT_WARN] = "warn", [VERDICT_FAIL] = "fail"};

struct doctor {
	struct command *command;
	const char *data_dir;
	bool is_there; /* the data folder */
	struct json *config; /* of the daemon, when it answers; else NULL */
	struct {
		const char *check, *detail, *advice;
		enum verdict verdict;
	} found[DOCTOR_CHECKS_MAX];
	size_t count;
};

static void add(struct doctor *doctor, const char *check, enum verdict verdict, const char *advice, const char *format, ...) __attribute__((format(printf, 5, 6)));

static void add(struct doctor *doctor, const char *check, enum verdict verdict, const char *advice, const char *format, ...)
{
	char text[1024];
	va_list list;
	if (doctor->count == DOCTOR_CHECKS_MAX)
		return;
	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	size_t at = doctor->count++;
	doctor->found[at].check = check;
	doctor->found[at].verdict = verdict;
	doctor->found[at].detail = arena_text(&doctor->command->arena, text);
	doctor->found[at].advice = verdict == VERDICT_OK ? NULL : advice;
}

static const char *path_to(struct doctor *doctor, const char *name)
{
	return arena_printf(&doctor->command->arena, "%s/%s", doctor->data_dir, name);
}

static double limit_of(const struct doctor *doctor, const char *name, double fallback)
{
	return json_get_number(json_get(doctor->config, "limits"), name, fallback);
}

/* --- the folder and its disk -------------------------------------------------------------------------------------- */

static void check_folder(struct doctor *doctor)
{
	struct stat status;
	if (stat(doctor->data_dir, &status) != 0) {
		add(doctor, "data folder", errno == ENOENT ? VERDICT_WARN : VERDICT_FAIL, "the first start of reprised makes it; another one: --data DIR or $REPRISE_DATA", "%s: %s", doctor->data_dir, strerror(errno));
		return;
	}
	if (!S_ISDIR(status.st_mode)) {
		add(doctor, "data folder", VERDICT_FAIL, "choose another one with --data DIR", "%s is no folder", doctor->data_dir);
		return;
	}
	doctor->is_there = true;
	if (status.st_uid != geteuid())
		add(doctor, "data folder", geteuid() == 0 ? VERDICT_WARN : VERDICT_FAIL, "run doctor and reprised as its owner", "%s is user %u's, this is user %u", doctor->data_dir, (unsigned)status.st_uid, (unsigned)geteuid());
	else if (access(doctor->data_dir, W_OK | X_OK) != 0)
		add(doctor, "data folder", VERDICT_FAIL, "make it writable (chmod u+rwx), or the file system (mount -o remount,rw)", "%s: %s", doctor->data_dir, strerror(errno));
	else if ((status.st_mode & 077) != 0)
		add(doctor, "data folder", VERDICT_WARN, "chmod 700: it holds keys and everybody's documents", "%s has mode %03o", doctor->data_dir, status.st_mode & 0777);
	else
		add(doctor, "data folder", VERDICT_OK, NULL, "%s, mode %03o", doctor->data_dir, status.st_mode & 0777);
}

static void check_file_system(struct doctor *doctor)
{
	static const struct {
		unsigned long type;
		const char *name, *advice;
		enum verdict verdict;
	} known[] = {
		{EXT4_SUPER_MAGIC, "ext", NULL, VERDICT_OK}, {XFS_SUPER_MAGIC, "xfs", NULL, VERDICT_OK}, {BTRFS_SUPER_MAGIC, "btrfs", NULL, VERDICT_OK}, {0x2fc12fc1, "zfs", NULL, VERDICT_OK},
		{F2FS_SUPER_MAGIC, "f2fs", NULL, VERDICT_OK}, {OVERLAYFS_SUPER_MAGIC, "overlay", "a container's own layer goes with it: mount a volume", VERDICT_WARN},
		{TMPFS_MAGIC, "tmpfs", "it is gone with the next restart of the machine: choose a folder on a disk", VERDICT_WARN},
		{NFS_SUPER_MAGIC, "nfs", "a write-ahead log needs shared memory and locks that work: choose a local file system", VERDICT_FAIL},
		{0xff534d42, "cifs", "a write-ahead log needs shared memory and locks that work: choose a local file system", VERDICT_FAIL},
		{0xfe534d42, "smb", "a write-ahead log needs shared memory and locks that work: choose a local file system", VERDICT_FAIL},
		{0x65735546, "fuse", "make sure that it keeps what was synced, or choose a local file system", VERDICT_WARN},
	};
	struct statfs status;
	if (!doctor->is_there || statfs(doctor->data_dir, &status) != 0)
		return;
	for (size_t i = 0; i < COUNT_OF(known); i++)
		if (known[i].type == ((unsigned long)status.f_type & 0xffffffff)) {
			add(doctor, "file system", known[i].verdict, known[i].advice, "%s", known[i].name);
			return;
		}
	add(doctor, "file system", VERDICT_OK, NULL, "type %lx", (unsigned long)status.f_type);
}

static int compare_times(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* What a commit pays: a page written behind the end of a file, and flushed. */
static void check_sync(struct doctor *doctor)
{
	const char *path = path_to(doctor, "doctor.scratch");
	static const char page[4096];
	double times[DOCTOR_SYNCS];
	size_t count = 0;
	if (!doctor->is_there || access(doctor->data_dir, W_OK) != 0)
		return;
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	int failed = file < 0 ? errno : 0;
	for (; failed == 0 && count < DOCTOR_SYNCS; count++) {
		struct timespec began, ended;
		clock_gettime(CLOCK_MONOTONIC, &began);
		if (write(file, page, sizeof page) != (ssize_t)sizeof page || fdatasync(file) != 0)
			failed = errno != 0 ? errno : EIO;
		clock_gettime(CLOCK_MONOTONIC, &ended);
		times[count] = (double)(ended.tv_sec - began.tv_sec) * 1e6 + (double)(ended.tv_nsec - began.tv_nsec) / 1e3;
	}
	if (file >= 0)
		close(file);
	unlink(path);
	if (failed != 0) {
		add(doctor, "flush", VERDICT_FAIL, "see `data folder` and `disk space`; an input/output error is the disk's", "%s: %s", path, strerror(failed));
		return;
	}
	qsort(times, count, sizeof *times, compare_times);
	add(doctor, "flush", times[count / 2] > DOCTOR_SYNC_SLOW_US ? VERDICT_WARN : VERDICT_OK, "each run waits for two of them: a faster disk makes all faster", "fdatasync takes %.0f us (p50 of %zu)", times[count / 2], count);
}

static void check_space(struct doctor *doctor)
{
	double low = limit_of(doctor, "lowSpace", 32 * MIB), reserve = limit_of(doctor, "reserve", 16 * MIB);
	struct statvfs status;
	struct stat file;
	if (!doctor->is_there || statvfs(doctor->data_dir, &status) != 0)
		return;
	double space = (double)status.f_bavail * (double)status.f_frsize;
	add(doctor, "disk space", space < low ? VERDICT_FAIL : space < 4 * (low + reserve) ? VERDICT_WARN : VERDICT_OK, "make room: below limits.lowSpace new work is refused, with none nothing is written", "%s free, limits.lowSpace is %s",
	    text_size(&doctor->command->arena, space), text_size(&doctor->command->arena, low));
	if (status.f_files > 0 && status.f_favail < 100)
		add(doctor, "files left", VERDICT_FAIL, "remove files: this file system takes no more", "%llu", (unsigned long long)status.f_favail);
	if (stat(path_to(doctor, "journal.db"), &file) != 0)
		return;
	if (stat(path_to(doctor, "reserve"), &file) != 0)
		add(doctor, "reserve", VERDICT_WARN, "it is made as soon as there is room for it and limits.lowSpace, while reprised runs", "there is none: the disk was full, or no daemon of this version was started here yet");
	else
		add(doctor, "reserve", (double)file.st_blocks * 512 < reserve ? VERDICT_WARN : VERDICT_OK, "start reprised: it is made again", "%s", text_size(&doctor->command->arena, (double)file.st_blocks * 512));
}

/* --- the journal ---------------------------------------------------------------------------------------------------- */

static void check_lock(struct doctor *doctor)
{
	char pid[32] = {0};
	int file = doctor->is_there ? open(path_to(doctor, "lock"), O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
	bool held = false;
	if (file >= 0) {
		held = flock(file, LOCK_SH | LOCK_NB) != 0;
		ssize_t len = pread(file, pid, sizeof pid - 1, 0);
		pid[len > 0 ? strspn(pid, "0123456789") : 0] = '\0';
		close(file);
	}
	if (held && doctor->config == NULL)
		add(doctor, "daemon", VERDICT_WARN, "it may be starting, or listen elsewhere: --socket PATH", "process %s holds the folder, but does not answer at %s", pid[0] ? pid : "(unknown)", client_place(&doctor->command->client));
	else
		add(doctor, "daemon", VERDICT_OK, NULL, "%s", held ? arena_printf(&doctor->command->arena, "runs as process %s and answers", pid[0] ? pid : "(unknown)") : "not running on this folder");
}

static void check_journal_file(struct doctor *doctor)
{
	struct store_reader *reader;
	struct store_stats stats;
	struct error error;
	if (!doctor->is_there)
		return;
	if (access(path_to(doctor, "restoring"), F_OK) == 0)
		add(doctor, "restore", VERDICT_FAIL, "run the same `reprise journal restore` once more", "a restore into this folder was interrupted");
	int code = store_open_readonly(doctor->data_dir, &reader, &error);
	if (code == ERR_NOT_FOUND) {
		add(doctor, "journal", VERDICT_OK, NULL, "none yet; the first start makes it");
		return;
	}
	if (code == 0 && reader_stats(reader, &stats, &error) == 0) {
		double limit = limit_of(doctor, "wal", 256 * MIB);
		add(doctor, "journal", VERDICT_OK, NULL, "%llu entries, %llu runs (%llu open), %s, of which %s are free inside", (unsigned long long)stats.entries, (unsigned long long)stats.runs, (unsigned long long)stats.open_runs,
		    text_size(&doctor->command->arena, (double)stats.database_bytes), text_size(&doctor->command->arena, (double)stats.free_bytes));
		add(doctor, "write-ahead log", (double)stats.wal_bytes >= limit ? VERDICT_FAIL : (double)stats.wal_bytes >= limit / 4 ? VERDICT_WARN : VERDICT_OK,
		    "another program keeps an old state of journal.db open (fuser journal.db shows it): end it", "%s, limits.wal is %s", text_size(&doctor->command->arena, (double)stats.wal_bytes), text_size(&doctor->command->arena, limit));
	} else {
		/* An older schema is no fault: the next start migrates it. */
		bool is_older = error.code == ERR_UNSUPPORTED && strstr(error.message, "start reprised on it once") != NULL;
		add(doctor, "journal", is_older ? VERDICT_WARN : VERDICT_FAIL, error.code == ERR_CORRUPT ? "restore a backup: reprise journal restore --help" : "the message says what to do", "%s", error.message);
	}
	if (code == 0)
		store_reader_close(reader);
}

static void check_clock(struct doctor *doctor)
{
	static const char *const names[] = {"journal.db", "journal.db-wal", "anchor"};
	struct timespec now;
	double ahead = 0;
	clock_gettime(CLOCK_REALTIME, &now);
	for (size_t i = 0; doctor->is_there && i < COUNT_OF(names); i++) {
		struct stat status;
		if (stat(path_to(doctor, names[i]), &status) == 0) {
			double by = (double)(status.st_mtim.tv_sec - now.tv_sec) * 1000;
			ahead = by > ahead ? by : ahead;
		}
	}
	add(doctor, "clock", ahead > DOCTOR_CLOCK_MS ? VERDICT_WARN : VERDICT_OK, "set the clock (timedatectl): times of entries are claims that others read", "%s",
	    ahead > DOCTOR_CLOCK_MS ? arena_printf(&doctor->command->arena, "the journal was written %.0f s ahead of this clock", ahead / 1000) : "not behind the journal's files");
}

static void check_key(struct doctor *doctor, const char *purpose)
{
	const char *named = json_get_text(json_get(json_get(doctor->config, "signing"), purpose), "file");
	const char *path = named != NULL ? named : path_to(doctor, arena_printf(&doctor->command->arena, "keys/%s.pem", purpose));
	const char *check = arena_printf(&doctor->command->arena, "%s key", purpose);
	struct stat status;
	if (stat(path, &status) != 0) {
		if (access(path_to(doctor, "journal.db"), F_OK) == 0)
			add(doctor, check, doctor->config != NULL || errno != ENOENT ? VERDICT_FAIL : VERDICT_WARN, "put it back; without the log key the journal cannot be continued (another place: `signing` in the configuration)", "%s: %s", path, strerror(errno));
		return;
	}
	add(doctor, check, (status.st_mode & 077) != 0 ? VERDICT_FAIL : VERDICT_OK, "chmod 600: whoever reads it can sign in this log's name", "%s, mode %03o", path, status.st_mode & 0777);
}

static void check_keys(struct doctor *doctor)
{
	if (!doctor->is_there)
		return;
	check_key(doctor, "fact");
	check_key(doctor, "log");
}

/* --- the rest of the machine ----------------------------------------------------------------------------------------- */

static void check_helper(struct doctor *doctor)
{
	const char *program = jq_program(&doctor->command->arena);
	struct jq_process jq = {0};
	struct error error;
	if (program == NULL) {
		add(doctor, "reprise-jq", VERDICT_FAIL, "install it beside reprised, or into PATH", "not found: definitions whose expressions need jq are refused");
		return;
	}
	/* It answers nothing before its sandbox is up. */
	int code = jq_start(&jq, program, &error);
	usleep(100000);
	siginfo_t ended = {0};
	bool alive = code == 0 && waitid(P_PID, (id_t)jq.pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0;
	jq_stop(&jq);
	add(doctor, "reprise-jq", alive ? VERDICT_OK : VERDICT_FAIL, "does the kernel allow seccomp here? (container: --security-opt seccomp=…)", "%s%s%s", program, code != 0 ? ": " : "", code != 0 ? error.message : "");
}

static void check_files(struct doctor *doctor)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	add(doctor, "open files", limit.rlim_max < DOCTOR_FILES_MIN ? VERDICT_WARN : VERDICT_OK, "raise it (ulimit -Hn, LimitNOFILE= of the unit): each client takes one", "at most %llu", (unsigned long long)limit.rlim_max);
}

static int get_with(struct doctor *doctor, const char *path, struct json **json)
{
	const struct request request = {.path = path, .timeout_ms = DOCTOR_ASK_MS};
	struct reply reply;
	struct error error;
	int code = client_send(&doctor->command->client, &request, &reply, &error);
	long status = code == 0 ? reply.status : 0;
	*json = code == 0 ? json_parse(&doctor->command->arena, buffer_bytes(&reply.body), JSON_STRICT, NULL, &error) : NULL;
	reply_close(&reply);
	return (int)status;
}

static void check_daemon(struct doctor *doctor)
{
	struct json *json;
	if (doctor->config == NULL)
		return;
	int status = get_with(doctor, "/readyz", &json);
	const char *detail = json_get_text(json, "detail");
	add(doctor, "ready", status == 200 ? VERDICT_OK : status == 507 ? VERDICT_FAIL : VERDICT_WARN, "the message says what to do", "%s", status == 200 ? "it takes new work" : detail != NULL ? detail : "no answer");
}

/* Each runtime's list of models, asked from here: GET only, nothing is loaded. */
static void check_runtimes(struct doctor *doctor)
{
	const struct json *runtimes = json_get(doctor->config, "runtimes");
	for (size_t i = 0; json_is(runtimes, JSON_OBJECT) && i < runtimes->object.count; i++) {
		const char *name = runtimes->object.members[i].name, *url = json_get_text(runtimes->object.members[i].value, "url");
		const char *check = arena_printf(&doctor->command->arena, "runtime %s", name);
		struct client_options options = {.url = url};
		struct request request = {.path = "/v1/models", .timeout_ms = DOCTOR_ASK_MS};
		struct client client = {0};
		struct reply reply;
		struct error error;
		if (url == NULL) {
			add(doctor, check, VERDICT_OK, NULL, "a simulator that the daemon starts");
			continue;
		}
		int code = client_open(&client, &options, &error);
		if (code == 0) {
			/* The token is the daemon's, and nobody else's to see. */
			free(client.token);
			client.token = NULL;
			code = client_send(&client, &request, &reply, &error);
			if (code == 0)
				add(doctor, check, reply.status >= 500 ? VERDICT_WARN : VERDICT_OK, "see its own log", "%s answers %ld", url, reply.status);
			reply_close(&reply);
			client_close(&client);
		}
		if (code != 0)
			add(doctor, check, VERDICT_WARN, "start it, or put its url right: runs that need it wait and are retried", "%s", error.message);
	}
}

/* --- all of them ---------------------------------------------------------------------------------------------------- */

static void (*const checks[])(struct doctor *) = {check_folder, check_file_system, check_sync, check_space, check_lock, check_daemon, check_journal_file,
						   check_clock, check_keys, check_helper, check_files, check_runtimes};

static void print(struct doctor *doctor, enum verdict worst)
{
	struct command *command = doctor->command;
	struct arena *arena = &command->arena;
	struct json *json = json_object(arena), *list = json_array(arena);
	size_t wide = 0;
	for (size_t i = 0; i < doctor->count; i++)
		wide = strlen(doctor->found[i].check) > wide ? strlen(doctor->found[i].check) : wide;
	for (size_t i = 0; i < doctor->count; i++) {
		struct json *item = json_object(arena);
		json_set_text(arena, item, "check", doctor->found[i].check);
		json_set_text(arena, item, "status", verdicts[doctor->found[i].verdict]);
		json_set_text(arena, item, "detail", doctor->found[i].detail);
		json_set_text(arena, item, "advice", doctor->found[i].advice);
		json_add(arena, list, item);
		if (command->output.format == FORMAT_TEXT || command->output.format == FORMAT_IDS) {
			output_line(&command->output, "%-5s %-*s  %s", verdicts[doctor->found[i].verdict], (int)wide, doctor->found[i].check, doctor->found[i].detail);
			if (doctor->found[i].advice != NULL)
				output_line(&command->output, "      %-*s  → %s", (int)wide, "", doctor->found[i].advice);
		}
	}
	json_set_text(arena, json, "status", verdicts[worst]);
	json_set_text(arena, json, "data", doctor->data_dir);
	json_set(arena, json, "checks", list);
	if (command->output.format == FORMAT_JSON || command->output.format == FORMAT_JSONL)
		output_json(&command->output, json);
}

int command_doctor(struct command *command)
{
	struct doctor *doctor = arena_zero(&command->arena, sizeof *doctor);
	enum verdict worst = VERDICT_OK;
	doctor->command = command;
	int status = client_ready(command);
	if (status != STATUS_OK)
		return status;
	if (get_with(doctor, "/v1/config", &doctor->config) != 200)
		doctor->config = NULL;
	/* The daemon that answers knows its folder; one that was named goes before. */
	const char *told = json_get_text(doctor->config, "data");
	doctor->data_dir = command_option(command, "data") == NULL && told != NULL ? told : client_data_dir(&command->arena, command_option(command, "data"));
	for (size_t i = 0; i < COUNT_OF(checks); i++)
		checks[i](doctor);
	for (size_t i = 0; i < doctor->count; i++)
		worst = doctor->found[i].verdict > worst ? doctor->found[i].verdict : worst;
	print(doctor, worst);
	return worst == VERDICT_FAIL ? STATUS_ERROR : STATUS_OK;
}
