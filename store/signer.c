/* The fact key and the log key: read or made at start, kept in locked memory, used by the writer thread alone.
 * Start at signer_open(). Source: provenance.md 3.4. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/internal.h"
#include "workflow/base/check.h"
#include "workflow/base/fail_point.h"

int sync_folder_of(const char *path, struct error *error)
{
	char copy[STORE_PATH_MAX];
	const char *folder;
	int descriptor, result = 0;

	snprintf(copy, sizeof(copy), "%s", path);
	folder = dirname(copy);
	descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (descriptor < 0 || fsync(descriptor) != 0)
		result = error_set(error, ERR_IO, "sync folder %s: %s", folder, strerror(errno));
	if (descriptor >= 0)
		close(descriptor);
	return result;
}

static int write_all(int descriptor, struct bytes bytes)
{
	for (size_t done = 0; done < bytes.len;) {
		ssize_t n = write(descriptor, bytes.data + done, bytes.len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		done += (size_t)n;
	}
	return 0;
}

/* Written under another name first: the process may end at any point, and half a key would be refused by every later start. */
static int create_key(const char *path, struct secret_key *key, struct error *error)
{
	char temporary[STORE_PATH_MAX];
	uint8_t seed[KEY_SEED_LEN];
	struct buffer pem;
	int descriptor;

	if ((size_t)snprintf(temporary, sizeof(temporary), "%s.new", path) >= sizeof(temporary))
		return error_set(error, ERR_INVALID, "create key %s: the path is too long", path);
	unlink(temporary); /* What an earlier start left. */
	descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (descriptor < 0)
		return error_set(error, ERR_IO, "create key %s: %s", path, strerror(errno));
	randombytes_buf(seed, sizeof(seed));
	secret_key_init(key, seed);
	sodium_memzero(seed, sizeof(seed));
	buffer_init(&pem, STORE_KEY_FILE_MAX);
	secret_key_print_pem(key, &pem);
	CHECK(!pem.overflow);
	if (write_all(descriptor, buffer_bytes(&pem)) != 0 || fsync(descriptor) != 0)
		error_set(error, errno == ENOSPC ? ERR_FULL : ERR_IO, "write key %s: %s", path, strerror(errno));
	sodium_memzero(pem.data, pem.cap);
	buffer_close(&pem);
	close(descriptor);
	FAIL_POINT(KEY_WRITTEN);
	/* link() and not rename(): a key that has come there meanwhile is never replaced. */
	if (error->code == ERR_NONE && link(temporary, path) != 0)
		error_set(error, ERR_IO, "create key %s: %s", path, strerror(errno));
	FAIL_POINT(KEY_LINKED);
	unlink(temporary);
	return error->code == ERR_NONE ? sync_folder_of(path, error) : (int)error->code;
}

static int read_key(const char *path, int descriptor, struct secret_key *key, struct error *error)
{
	char text[STORE_KEY_FILE_MAX];
	struct stat status;
	size_t len = 0;

	/* Of the descriptor, so that what was looked at is what is read. */
	if (fstat(descriptor, &status) != 0)
		return error_set(error, ERR_IO, "key %s: %s", path, strerror(errno));
	if (!S_ISREG(status.st_mode))
		return error_set(error, ERR_INVALID, "key %s is no regular file", path);
	if (status.st_uid != geteuid() && status.st_uid != 0)
		return error_set(error, ERR_DENIED, "key %s belongs to user %u: it must belong to the daemon's user or root",
				 path, (unsigned)status.st_uid);
	if ((status.st_mode & 077) != 0)
		return error_set(error, ERR_DENIED, "key %s can be read by others (mode %03o): chmod 600 it", path,
				 (unsigned)status.st_mode & 0777);
	while (len < sizeof(text)) {
		ssize_t n = read(descriptor, text + len, sizeof(text) - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_set(error, ERR_IO, "read key %s: %s", path, strerror(errno));
		if (n == 0)
			break;
		len += (size_t)n;
	}
	if (len == sizeof(text))
		error_set(error, ERR_TOO_LARGE, "more than %d bytes", STORE_KEY_FILE_MAX - 1);
	else
		secret_key_parse_pem(key, (struct bytes){(const uint8_t *)text, len}, error);
	sodium_memzero(text, sizeof(text));
	return error->code == ERR_NONE ? 0 : error_wrap(error, "key %s", path);
}

static int load_key(const char *path, const char *what, bool may_create, struct secret_key *key, struct error *error)
{
	/* O_NONBLOCK: a FIFO in its place would hold the start for ever. */
	int descriptor = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (descriptor < 0 && errno == ENOENT && may_create)
		return create_key(path, key, error);
	if (descriptor < 0 && errno == ENOENT)
		return error_set(error, ERR_NOT_FOUND,
				 "the %s key %s is missing: put it back from its backup, or name another with signing.%s.file",
				 what, path, what);
	if (descriptor < 0 && errno == ELOOP)
		return error_set(error, ERR_INVALID, "key %s is a symbolic link, expected a regular file", path);
	if (descriptor < 0)
		return error_set(error, ERR_IO, "open key %s: %s", path, strerror(errno));
	read_key(path, descriptor, key, error);
	close(descriptor);
	return error->code;
}

int signer_open(struct signer *signer, const struct store_options *options, bool may_create, struct error *error)
{
	CHECK(sodium_init() >= 0);
	signer->fact = sodium_malloc(sizeof(*signer->fact));
	signer->log = sodium_malloc(sizeof(*signer->log));
	CHECK(signer->fact != NULL);
	CHECK(signer->log != NULL);
	if (load_key(options->fact_key_file, "fact", may_create, signer->fact, error) != 0 ||
	    load_key(options->log_key_file, "log", may_create, signer->log, error) != 0) {
		signer_close(signer);
		return error->code;
	}
	if (strcmp(signer->fact->public.id, signer->log->public.id) == 0) {
		signer_close(signer);
		return error_set(error, ERR_INVALID, "the fact key and the log key are the same key: each needs its own");
	}
	sodium_mprotect_readonly(signer->fact);
	sodium_mprotect_readonly(signer->log);
	return 0;
}

int signer_check(const struct store_options *options, bool may_be_missing, struct public_key *log, struct error *error)
{
	const char *const paths[] = {options->fact_key_file, options->log_key_file}, *const names[] = {"fact", "log"};
	struct public_key keys[2] = {0};
	struct secret_key *key;

	CHECK(sodium_init() >= 0);
	key = sodium_malloc(sizeof(*key));
	CHECK(key != NULL);
	for (int i = 0; i < 2 && error->code == ERR_NONE; i++) {
		if (load_key(paths[i], names[i], false, key, error) == 0)
			keys[i] = key->public;
		else if (error->code == ERR_NOT_FOUND && may_be_missing)
			*error = (struct error){0};
	}
	sodium_free(key);
	if (error->code == ERR_NONE && keys[0].id[0] && strcmp(keys[0].id, keys[1].id) == 0)
		error_set(error, ERR_INVALID, "the fact key and the log key are the same key: each needs its own");
	*log = keys[1];
	return error->code;
}

void signer_close(struct signer *signer)
{
	/* sodium_free() wipes what it frees. */
	sodium_free(signer->fact);
	sodium_free(signer->log);
	signer->fact = signer->log = NULL;
}
