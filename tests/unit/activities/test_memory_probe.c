/* How much memory is in use: texts of commands, AMD's files, processes, and NVML by a library that stands in its place. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activities/memory_probe.h"
#include "workflow/base/check.h"

#define MIB (1024.0 * 1024)

static const struct {
	const char *text;
	double unit, value; /* negative: an error */
} texts[] = {
	{"123\n", 1, 123},
	{"123", MIB, 123 * MIB},
	{" 1.5 GiB \n", 1, 1.5 * 1024 * MIB},
	{"1234 MiB\n", 1, 1234 * MIB}, /* nvidia-smi --format=csv,noheader */
	{"1234\n10\n", MIB, 1244 * MIB}, /* … nounits, two devices */
	{"0, 1234\n1, 10\n", MIB, 1244 * MIB}, /* … with their index */
	{"memory.used [MiB]\n77 MiB\n", 1, 77 * MIB}, /* … with a header */
	{"\r\n\"(PDH-CSV 4.0)\",\"\\\\HOST\\GPU Adapter Memory(luid_0x0_0xd6a5_phys_0)\\Shared Usage\",\"\\\\HOST\\GPU Adapter Memory(luid_0x0_0xd8ba_phys_0)\\Shared Usage\"\r\n"
	 "\"11/29/2026 10:00:00.123\",\"154279936.000000\",\"0.000000\"\r\n\r\nExiting, please wait...                         \r\nThe command completed successfully.\r\n",
	 1, 154279936},
	{"\"11/29/2026 10:00:00,123\",\"1542799,500000\"\r\n", 1, 1542799.5}, /* a comma before decimals */
	{"luid_0x0_0xd6a5_phys_0,154279936\r\nluid_0x0_0xd8ba_phys_0,64\r\n", 1, 154280000}, /* powershell.exe */
	{"[N/A]\n", 1, -1},
	{"0, [Not Supported]\n", 1, -1},
	{"", 1, -1},
	{"well\n", 1, -1},
	{"name, words\n", 1, -1},
	{"12 apples\n", 1, -1},
	{"1e400\n", 1, -1},
	{"nan\n", 1, -1},
};

/* Each text gives its number, in bytes, or an error. */
START_TEST(texts_are_read)
{
	struct error error = {0};
	double value;
	int code = memory_probe_parse(bytes_text(texts[_i].text), texts[_i].unit, &value, &error);

	if (texts[_i].value < 0) {
		ck_assert_msg(code != 0, "%s", texts[_i].text);
		ck_assert_str_ne(error.message, "");
	} else {
		ck_assert_msg(code == 0, "%s: %s", texts[_i].text, error.message);
		ck_assert_double_eq(value, texts[_i].value);
	}
}
END_TEST

static double must_read(const struct watch_config *config, pid_t pid)
{
	struct error error;
	double value;

	ck_assert_msg(memory_probe_read(config, pid, &value, &error) == 0, "%s", error.message);
	return value;
}

static void must_fail(const struct watch_config *config, const char *part)
{
	struct error error;
	double value;

	ck_assert_int_ne(memory_probe_read(config, getpid(), &value, &error), 0);
	ck_assert_msg(strstr(error.message, part) != NULL, "%s", error.message);
}

/* Whoever reads it meanwhile reads the old one or the new one. */
static void write_file(const char *path, const char *text)
{
	char new[512];
	FILE *file;

	snprintf(new, sizeof(new), "%s.new", path);
	file = fopen(new, "w");
	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	fclose(file);
	ck_assert_int_eq(rename(new, path), 0);
}

/* Of the card in use, and what has spilled into the host's memory. */
START_TEST(amd_files_are_read)
{
	char folder[] = "/tmp/reprise-amd-XXXXXX", path[80];
	struct watch_config config = {.kind = WATCH_AMD_GTT, .device = mkdtemp(folder)};

	must_fail(&config, "mem_info_gtt_used");
	snprintf(path, sizeof(path), "%s/mem_info_gtt_used", folder);
	write_file(path, "1610612736\n");
	ck_assert_double_eq(must_read(&config, 0), 1610612736);
	write_file(path, "no number\n");
	must_fail(&config, "holds no number");
	unlink(path);
	config.kind = WATCH_AMD_VRAM;
	snprintf(path, sizeof(path), "%s/mem_info_vram_used", folder);
	write_file(path, "7\n");
	ck_assert_double_eq(must_read(&config, 0), 7);
	unlink(path);
	rmdir(folder);
	config.device = "card99";
	must_fail(&config, "/sys/class/drm/card99/device/mem_info_vram_used");
}
END_TEST

/* A process counts with what came of it; before it is there it holds nothing. */
START_TEST(process_memory_is_read)
{
	struct watch_config config = {.kind = WATCH_PROCESS};
	double alone, more;
	char *block;

	ck_assert_double_eq(must_read(&config, 0), 0);
	alone = must_read(&config, getpid());
	ck_assert_double_gt(alone, 100 * 1024);
	block = memory_alloc(64 << 20);
	memset(block, 1, 64 << 20);
	more = must_read(&config, getpid());
	ck_assert_double_gt(more, alone + 60 * MIB);
	ck_assert_int_eq(block[12345], 1);
	free(block);
	config.kind = WATCH_CGROUP;
	ck_assert_double_eq(must_read(&config, 0), 0);
}
END_TEST

/* NVML, by index and by UUID; a driver that is not loaded, a device that is not there, a value that is not available. */
START_TEST(nvml_is_read)
{
	struct watch_config config = {.kind = WATCH_NVIDIA, .within_ms = 10 * 1000};
	const char *file = getenv("FAKE_NVML");

	write_file(file, "init 9\n");
	must_fail(&config, "Driver Not Loaded");
	write_file(file, "init 0\nmemory 0 1073741824\n");
	ck_assert_double_eq(must_read(&config, 0), 1073741824);
	config.device = "GPU-1";
	ck_assert_double_eq(must_read(&config, 0), 1073741824);
	config.device = "GPU-2";
	must_fail(&config, "device GPU-2: Invalid Argument");
	config.device = "7";
	must_fail(&config, "device 7");
	config.device = "0";
	write_file(file, "init 0\nmemory 3 0\n");
	must_fail(&config, "Not Supported");
	write_file(file, "init 0\nmemory 0 18446744073709551615\n");
	must_fail(&config, "not available");
	unlink(file);
}
END_TEST

/* Which GPUs there are, once: what the driver says later is not asked for; until then nothing is known. One that tells nothing of itself is there all the same. */
START_TEST(gpus_are_described)
{
	const char *file = getenv("FAKE_NVML");
	struct gpus gpus;
	struct error error;

	write_file(file, "init 9\n");
	ck_assert_int_ne(memory_probe_gpus(1000, &gpus, &error), 0);
	ck_assert(!gpus.known && strstr(error.message, "Driver Not Loaded") != NULL);
	write_file(file, "init 0\ncount 3 0\n");
	ck_assert_int_ne(memory_probe_gpus(1000, &gpus, &error), 0);
	ck_assert(!gpus.known && strstr(error.message, "Not Supported") != NULL);
	write_file(file, "init 0\ncount 0 2\ndriver 0\n");
	for (int i = 0; i < 2; i++) {
		ck_assert_msg(memory_probe_gpus(1000, &gpus, &error) == 0, "%s", error.message);
		ck_assert(gpus.known);
		ck_assert_uint_eq(gpus.count, 2);
		ck_assert_str_eq(gpus.list[0].uuid, "GPU-1");
		ck_assert_str_eq(gpus.list[0].name, "Fake? 4090");
		ck_assert_str_eq(gpus.list[0].compute_capability, "8.9");
		ck_assert_str_eq(gpus.list[1].name, "");
		ck_assert_str_eq(gpus.driver, "570.124.06");
		ck_assert_str_eq(gpus.cuda, "12.8");
		write_file(file, "init 0\ncount 0 1\n");
	}
	unlink(file);
}
END_TEST

/* With more than GPUS_MAX their number is told, and the first ones. A driver may not tell its version. */
START_TEST(many_gpus_are_counted)
{
	const char *file = getenv("FAKE_NVML");
	struct gpus gpus;
	struct error error;

	write_file(file, "init 0\ncount 0 33\ndriver 3\n");
	ck_assert_int_eq(memory_probe_gpus(1000, &gpus, &error), 0);
	ck_assert_uint_eq(gpus.count, GPUS_MAX + 1);
	ck_assert_str_eq(gpus.driver, "");
	unlink(file);
}
END_TEST

static void *read_alone(void *arg)
{
	const struct watch_config config = {.kind = WATCH_NVIDIA, .within_ms = 10 * 1000};
	double *value = arg;

	*value = must_read(&config, 0);
	return NULL;
}

/* A driver that hangs holds up those who come meanwhile for their time at most; when it returns all is as before. */
START_TEST(nvml_that_hangs_holds_up_nobody)
{
	struct watch_config config = {.kind = WATCH_NVIDIA, .within_ms = 300}, patient = {.kind = WATCH_NVIDIA, .within_ms = 60 * 1000};
	const char *file = getenv("FAKE_NVML");
	char hangs[512];
	pthread_t thread;
	double value;

	snprintf(hangs, sizeof(hangs), "%s.hangs", file);
	unlink(hangs);
	write_file(file, "init 0\nmemory 0 5\nhangs 0\n");
	ck_assert_int_eq(pthread_create(&thread, NULL, read_alone, &value), 0);
	while (access(hangs, F_OK) != 0)
		usleep(10 * 1000);
	must_fail(&config, "does not return"); /* waited for */
	must_fail(&config, "does not return"); /* … and not any more */
	write_file(file, "init 0\nmemory 0 7\n");
	pthread_join(thread, NULL);
	ck_assert_double_eq(value, 7);
	ck_assert_double_eq(must_read(&patient, 0), 7);
	unlink(file);
	unlink(hangs);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("memory_probe");
	TCase *all = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(all, texts_are_read, 0, (int)COUNT_OF(texts));
	tcase_add_test(all, amd_files_are_read);
	tcase_add_test(all, process_memory_is_read);
	tcase_add_test(all, nvml_is_read);
	tcase_add_test(all, gpus_are_described);
	tcase_add_test(all, many_gpus_are_counted);
	tcase_add_test(all, nvml_that_hangs_holds_up_nobody);
	suite_add_tcase(suite, all);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
