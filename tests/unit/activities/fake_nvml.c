/* A library that stands in NVML's place: what it says is in the file that $FAKE_NVML names, "init CODE", "memory CODE USED", "count CODE DEVICES" lines;
 * "hangs 0" makes the call not return before the file is another one; $FAKE_NVML.hangs is there from then on. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct memory {
	unsigned long long total, free, used;
};
int nvmlInit_v2(void);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
const char *nvmlErrorString(int code);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetUUID(void *device, char *text, unsigned size);
int nvmlDeviceGetName(void *device, char *text, unsigned size);
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor);
int nvmlSystemGetDriverVersion(char *text, unsigned size);
int nvmlSystemGetCudaDriverVersion_v2(int *version);

static int read_word(const char *word, unsigned long long *used)
{
	FILE *file = fopen(getenv("FAKE_NVML"), "r");
	char line[128], name[32];
	int code = 999, found = 999;

	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "%31s %d %llu", name, &code, used) >= 2 && strcmp(name, word) == 0)
			found = code;
	if (file != NULL)
		fclose(file);
	return found;
}

int nvmlInit_v2(void)
{
	unsigned long long none;

	return read_word("init", &none);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
	static int here;

	*device = &here;
	return index == 0 ? 0 : 2;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
	return strcmp(uuid, "GPU-1") == 0 ? nvmlDeviceGetHandleByIndex_v2(0, device) : 6;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
	unsigned long long none;
	char path[512];

	(void)device;
	snprintf(path, sizeof(path), "%s.hangs", getenv("FAKE_NVML"));
	while (read_word("hangs", &none) == 0) {
		close(open(path, O_WRONLY | O_CREAT, 0600));
		usleep(10 * 1000);
	}
	return read_word("memory", &memory->used);
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
	unsigned long long told = 0;
	int code = read_word("count", &told);

	*count = (unsigned)told;
	return code;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned size)
{
	(void)device;
	snprintf(text, size, "GPU-1");
	return 0;
}

int nvmlDeviceGetName(void *device, char *text, unsigned size)
{
	(void)device;
	snprintf(text, size, "Fake\xe9 4090");
	return 0;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
	(void)device;
	*major = 8;
	*minor = 9;
	return 0;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
	unsigned long long none;
	int code = read_word("driver", &none);

	if (code == 0)
		snprintf(text, size, "570.124.06");
	return code;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	*version = 12080;
	return 0;
}

const char *nvmlErrorString(int code)
{
	return code == 3 ? "Not Supported" : code == 9 ? "Driver Not Loaded" : "Invalid Argument";
}
