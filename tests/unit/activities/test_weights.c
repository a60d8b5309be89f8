/* Weights: files, shards and folders, hashed once per identity, and what their headers say. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activities/gguf.h"
#include "activities/weights.h"
#include "workflow/base/check.h"

static char folder[64];
static struct weights_progress progress;

static void set_up(void)
{
	strcpy(folder, "/tmp/reprise-weights-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	progress = (struct weights_progress){0};
}

static void tear_down(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	ck_assert_int_eq(system(command), 0);
}

static const char *path_of(const char *name)
{
	static char path[4][512];
	static unsigned next;
	char *text = path[next++ % 4];

	snprintf(text, sizeof(path[0]), "%s/%s", folder, name);
	return text;
}

static void write_bytes(const char *name, const void *bytes, size_t len)
{
	FILE *file = fopen(path_of(name), "w");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(bytes, 1, len, file), len);
	ck_assert_int_eq(fclose(file), 0);
}

static void write_text(const char *name, const char *text)
{
	write_bytes(name, text, strlen(text));
}

static struct weights read_ok(const char *path, bool is_folder)
{
	struct weights weights = {0};
	struct error error;

	ck_assert_msg(weights_read(path, is_folder, &weights, &progress, &error) == 0, "%s", error.message);
	ck_assert(weights.known);
	return weights;
}

static void read_fails(const char *path, bool is_folder, enum error_code code, const char *words)
{
	struct weights weights = {0};
	struct error error;

	ck_assert_int_eq(weights_read(path, is_folder, &weights, &progress, &error), code);
	ck_assert_msg(strstr(error.message, words) != NULL, "%s", error.message);
	ck_assert(!weights.known);
}

/* ---- GGUF ---- */

static void add_number(struct buffer *out, uint64_t value, size_t size)
{
	for (size_t i = 0; i < size; i++)
		buffer_add_char(out, (char)(value >> 8 * i));
}

static void add_text(struct buffer *out, const char *text)
{
	add_number(out, strlen(text), 8);
	buffer_add_text(out, text);
}

/* A header with all kinds of values that have to be skipped. */
static void make_gguf(struct buffer *out)
{
	buffer_init(out, 1 << 20);
	buffer_add_text(out, "GGUF");
	add_number(out, 3, 4);
	add_number(out, 0, 8);
	add_number(out, 13, 8);
	add_text(out, "general.quantization_version"), add_number(out, 4, 4), add_number(out, 2, 4);
	add_text(out, "quantize.imatrix.file"), add_number(out, 8, 4), add_text(out, "/home/x/imatrix.dat");
	add_text(out, "quantize.imatrix.dataset"), add_number(out, 8, 4), add_text(out, "C:\\x\\texts.txt");
	add_text(out, "quantize.imatrix.entries_count"), add_number(out, 5, 4), add_number(out, 224, 4);
	add_text(out, "quantize.imatrix.chunks_count"), add_number(out, 5, 4), add_number(out, (uint64_t)-1, 4);
	add_text(out, "general.architecture"), add_number(out, 8, 4), add_text(out, "llama");
	add_text(out, "general.file_type"), add_number(out, 4, 4), add_number(out, 7, 4);
	add_text(out, "llama.context_length"), add_number(out, 4, 4), add_number(out, 2048, 4);
	add_text(out, "x.float"), add_number(out, 6, 4), add_number(out, 0, 4);
	add_text(out, "x.bool"), add_number(out, 7, 4), add_number(out, 1, 1);
	add_text(out, "x.words"), add_number(out, 9, 4), add_number(out, 8, 4), add_number(out, 2, 8), add_text(out, "a"), add_text(out, "bc");
	add_text(out, "x.numbers"), add_number(out, 9, 4), add_number(out, 10, 4), add_number(out, 2, 8), add_number(out, 1, 8), add_number(out, 2, 8);
	add_text(out, "tokenizer.chat_template"), add_number(out, 8, 4), add_text(out, "abc");
}

/* Architecture, quantisation and what it went by, template and trained context stand in the header of a GGUF file. */
START_TEST(gguf_header_is_read)
{
	struct weights weights;
	struct buffer gguf;
	struct digest abc = digest_of(BYTES_OF("abc"));

	make_gguf(&gguf);
	write_bytes("m.gguf", gguf.data, gguf.len);
	weights = read_ok(path_of("m.gguf"), false);
	ck_assert_str_eq(weights.header.arch, "llama");
	ck_assert_str_eq(weights.header.quantisation, "Q8_0");
	ck_assert_double_eq(weights.header.context_length, 2048);
	ck_assert_int_eq(weights.header.quantisation_version, 2);
	ck_assert_str_eq(weights.header.imatrix_file, "imatrix.dat");
	ck_assert_str_eq(weights.header.imatrix_dataset, "texts.txt");
	ck_assert_int_eq(weights.header.imatrix_entries, 224);
	ck_assert_int_eq(weights.header.imatrix_chunks, -1);
	ck_assert(weights.header.has_chat_template && digest_equal(&weights.header.chat_template, &abc));
	buffer_close(&gguf);
	write_text("m.bin", "no gguf");
	ck_assert_ptr_null(read_ok(path_of("m.bin"), false).header.source);
}
END_TEST

/* A header that is cut off at any byte, or damaged in any, is no header, and nothing worse. */
START_TEST(gguf_may_be_damaged)
{
	struct buffer gguf;
	uint8_t *copy;

	make_gguf(&gguf);
	copy = memory_alloc(gguf.len);
	for (size_t len = 0; len < gguf.len; len++) {
		struct weights_header header = {0};
		FILE *file = fmemopen((void *)gguf.data, len > 0 ? len : 1, "r");
		bool whole = len > 0 && gguf_read(file, &header);

		ck_assert(!whole && header.source == NULL);
		fclose(file);
	}
	for (size_t at = 0; at < gguf.len; at++)
		for (unsigned value = 0; value < 256; value += 17) {
			struct weights_header header = {0};
			FILE *file;

			memcpy(copy, gguf.data, gguf.len);
			copy[at] = (uint8_t)value;
			file = fmemopen(copy, gguf.len, "r");
			gguf_read(file, &header);
			fclose(file);
		}
	free(copy);
	buffer_close(&gguf);
}
END_TEST

/* ---- Sets ---- */

/* One shard stands for all; the digest is of all, and a missing one is told by its name. */
START_TEST(shards_belong_together)
{
	struct weights one, both;

	write_text("m-00001-of-00002.gguf", "one");
	read_fails(path_of("m-00001-of-00002.gguf"), false, ERR_NOT_FOUND, "m-00002-of-00002.gguf");
	write_text("m-00002-of-00002.gguf", "two");
	both = read_ok(path_of("m-00001-of-00002.gguf"), false);
	ck_assert_uint_eq(both.file_count, 2);
	ck_assert_int_eq(both.identity.size, 6);
	write_text("m.gguf", "one");
	one = read_ok(path_of("m.gguf"), false);
	ck_assert_uint_eq(one.file_count, 1);
	ck_assert(!digest_equal(&one.digest, &both.digest));
	ck_assert(weights_same(path_of("m-00001-of-00002.gguf"), false, &both));
	write_text("m-00002-of-00002.gguf", "other");
	ck_assert(!weights_same(path_of("m-00001-of-00002.gguf"), false, &both));
	read_fails(path_of("m-00001-of-99999.gguf"), false, ERR_TOO_LARGE, "WEIGHTS_FILES_MAX");
}
END_TEST

/* In slices (WEIGHTS_SLICE) the same comes of it, over the ends of files; a reading may be given up between two, or be told to stop. */
START_TEST(slices_make_the_same)
{
	struct weights whole, weights = {0};
	const char *path = path_of("m-00001-of-00002.gguf");
	struct weights_reading *reading;
	struct error error;
	unsigned slices = 1;

	write_text("m-00001-of-00002.gguf", "x");
	write_text("m-00002-of-00002.gguf", "y");
	ck_assert_int_eq(truncate(path, WEIGHTS_SLICE + WEIGHTS_SLICE / 2), 0);
	ck_assert_int_eq(truncate(path_of("m-00002-of-00002.gguf"), WEIGHTS_SLICE), 0);
	whole = read_ok(path, false);
	reading = weights_reading_new(path, false, &weights, &progress);
	for (; !weights_reading_go_on(reading, &error); slices++) {
		ck_assert(!weights.known);
		ck_assert_uint_eq(atomic_load(&progress.done), slices * (unsigned long long)WEIGHTS_SLICE);
		ck_assert_uint_eq(atomic_load(&progress.total), 2 * (unsigned long long)WEIGHTS_SLICE + WEIGHTS_SLICE / 2);
	}
	weights_reading_free(reading);
	ck_assert_uint_eq(slices, 3);
	ck_assert_int_eq(error.code, ERR_NONE);
	ck_assert(weights.known && digest_equal(&weights.digest, &whole.digest));
	ck_assert_uint_eq(atomic_load(&progress.total), 0);

	weights = (struct weights){0};
	reading = weights_reading_new(path, false, &weights, &progress);
	ck_assert(!weights_reading_go_on(reading, &error));
	weights_reading_free(reading);
	ck_assert(!weights.known);
	reading = weights_reading_new(path, false, &weights, &progress);
	ck_assert(!weights_reading_go_on(reading, &error));
	atomic_store(&progress.stop, true);
	ck_assert(weights_reading_go_on(reading, &error));
	ck_assert_int_eq(error.code, ERR_CANCELLED);
	weights_reading_free(reading);
	ck_assert(!weights.known);
}
END_TEST

/* A folder is all its files, by name; what Hugging Face keeps beside the weights is read. */
START_TEST(folders_are_sets)
{
	struct weights weights, again;
	struct digest abc = digest_of(BYTES_OF("abc"));
	struct error error;

	write_text("config.json", "{\"model_type\": \"qwen3\", \"quantization_config\": {\"quant_method\": \"awq\"}, \"max_position_embeddings\": 4096}");
	write_text("model.safetensors", "weights");
	write_text("tokenizer_config.json", "{\"chat_template\": \"abc\"}");
	write_text("generation_config.json", "abc");
	write_text(".hidden", "x");
	ck_assert_int_eq(mkdir(path_of("sub"), 0700), 0);
	weights = read_ok(folder, true);
	ck_assert_uint_eq(weights.file_count, 4);
	ck_assert_str_eq(weights.header.arch, "qwen3");
	ck_assert_str_eq(weights.header.quantisation, "awq");
	ck_assert(weights.header.has_chat_template && digest_equal(&weights.header.chat_template, &abc));
	ck_assert(weights.header.has_generation_config && digest_equal(&weights.header.generation_config, &abc));
	/* Known already: not read again. */
	again = weights;
	ck_assert_int_eq(weights_read(folder, true, &again, &progress, &error), 0);
	ck_assert(digest_equal(&again.digest, &weights.digest));
	ck_assert(weights_same(folder, true, &weights));
	write_text("chat_template.jinja", "other");
	ck_assert(!weights_same(folder, true, &weights));
	again = read_ok(folder, true);
	ck_assert(!digest_equal(&again.digest, &weights.digest));
	ck_assert(!digest_equal(&again.header.chat_template, &abc));
}
END_TEST

/* A pipe that has the name of a file which is read beside the weights holds nobody up. */
START_TEST(pipes_are_no_files)
{
	static const char *const names[] = {"config.json", "chat_template.jinja", "tokenizer_config.json", "generation_config.json"};
	struct weights weights;

	for (size_t i = 0; i < COUNT_OF(names); i++)
		ck_assert_int_eq(mkfifo(path_of(names[i]), 0600), 0);
	write_text("model.safetensors", "weights");
	weights = read_ok(folder, true);
	ck_assert_uint_eq(weights.file_count, 1);
	ck_assert_str_eq(weights.header.arch, "");
	ck_assert(!weights.header.has_chat_template && !weights.header.has_generation_config);
	read_fails(path_of("config.json"), false, ERR_INVALID, "not a regular file");
}
END_TEST

/* What is no file, no folder, empty, too much, or stopped is told. */
START_TEST(mistakes_are_told)
{
	char name[32];

	read_fails(path_of("none"), false, ERR_NOT_FOUND, "none");
	read_fails(path_of("none"), true, ERR_NOT_FOUND, "weights folder");
	read_fails(folder, false, ERR_INVALID, "not a regular file");
	read_fails(folder, true, ERR_INVALID, "no files");
	write_text("a", "x");
	atomic_store(&progress.stop, true);
	read_fails(path_of("a"), false, ERR_CANCELLED, "stopped");
	atomic_store(&progress.stop, false);
	for (int i = 0; i < WEIGHTS_FILES_MAX; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		write_text(name, "");
	}
	read_fails(folder, true, ERR_TOO_LARGE, "WEIGHTS_FILES_MAX");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("weights");
	TCase *tests = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tests, set_up, tear_down);
	tcase_add_test(tests, gguf_header_is_read);
	tcase_add_test(tests, gguf_may_be_damaged);
	tcase_add_test(tests, shards_belong_together);
	tcase_add_test(tests, slices_make_the_same);
	tcase_add_test(tests, folders_are_sets);
	tcase_add_test(tests, pipes_are_no_files);
	tcase_add_test(tests, mistakes_are_told);
	suite_add_tcase(suite, tests);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
