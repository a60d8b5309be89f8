/* See gguf.h. Every number of the file is hostile: lengths are bounded before anything is read by them. */
#include "activities/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"

enum { VERSION_MIN = 2, VERSION_MAX = 3, KEY_LEN_MAX = 256, NESTING_MAX = 4 };

enum value_type {
	TYPE_UINT8, TYPE_INT8, TYPE_UINT16, TYPE_INT16, TYPE_UINT32, TYPE_INT32, TYPE_FLOAT32, TYPE_BOOL, TYPE_STRING, TYPE_ARRAY,
	TYPE_UINT64, TYPE_INT64, TYPE_FLOAT64, TYPE_COUNT,
};
static const unsigned char sizes[TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* general.file_type: how most tensors are stored. */
static const char *const file_types[] = {
	[0] = "F32", [1] = "F16", [2] = "Q4_0", [3] = "Q4_1", [7] = "Q8_0", [8] = "Q5_0", [9] = "Q5_1", [10] = "Q2_K", [11] = "Q3_K_S",
	[12] = "Q3_K_M", [13] = "Q3_K_L", [14] = "Q4_K_S", [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M", [18] = "Q6_K", [19] = "IQ2_XXS",
	[20] = "IQ2_XS", [21] = "Q2_K_S", [22] = "IQ3_XS", [23] = "IQ3_XXS", [24] = "IQ1_S", [25] = "IQ4_NL", [26] = "IQ3_S", [27] = "IQ3_M",
	[28] = "IQ2_S", [29] = "IQ2_M", [30] = "IQ4_XS", [31] = "IQ1_M", [32] = "BF16", [36] = "TQ1_0", [37] = "TQ2_0",
};

static bool read_number(FILE *file, size_t size, uint64_t *value)
{
	uint8_t bytes[8];

	if (fread(bytes, 1, size, file) != size)
		return false;
	*value = 0;
	for (size_t i = size; i-- > 0;)
		*value = *value << 8 | bytes[i];
	return true;
}

/* Freed by the caller; NULL: too long or cut off. */
static char *read_text(FILE *file, size_t max, size_t *len)
{
	uint64_t told;
	char *text;

	if (!read_number(file, 8, &told) || told > max)
		return NULL;
	text = memory_alloc((size_t)told + 1);
	if (fread(text, 1, (size_t)told, file) != told) {
		free(text);
		return NULL;
	}
	text[told] = '\0';
	*len = (size_t)told;
	return text;
}

static bool skip(FILE *file, uint64_t bytes)
{
	return bytes <= INT64_MAX / 2 && fseeko(file, (off_t)bytes, SEEK_CUR) == 0;
}

static bool skip_value(FILE *file, uint64_t type, unsigned depth)
{
	uint64_t count, item_type;

	if (type >= TYPE_COUNT || depth > NESTING_MAX)
		return false;
	if (type == TYPE_STRING)
		return read_number(file, 8, &count) && count <= GGUF_TEXT_MAX && skip(file, count);
	if (type != TYPE_ARRAY)
		return skip(file, sizes[type]);
	if (!read_number(file, 4, &item_type) || !read_number(file, 8, &count) || item_type >= TYPE_COUNT || count > GGUF_ITEMS_MAX)
		return false;
	if (sizes[item_type] > 0)
		return skip(file, count * sizes[item_type]);
	for (uint64_t i = 0; i < count; i++)
		if (!skip_value(file, item_type, depth + 1))
			return false;
	return true;
}

/* Printable ASCII alone: these texts become JSON. */
static void copy_text(char to[WEIGHTS_TEXT_MAX], const char *from)
{
	size_t len = 0;

	for (; from[len] != '\0' && len + 1 < WEIGHTS_TEXT_MAX; len++)
		to[len] = from[len] >= ' ' && from[len] <= '~' ? from[len] : '?';
	to[len] = '\0';
}

static const char *base_name(const char *path)
{
	for (const char *at = path; *at != '\0'; at++)
		if (*at == '/' || *at == '\\')
			path = at + 1;
	return path;
}

static bool take_text(FILE *file, const char *key, struct weights_header *header)
{
	size_t len;
	char *text = read_text(file, GGUF_TEXT_MAX, &len);

	if (text == NULL)
		return false;
	if (strcmp(key, "general.architecture") == 0) {
		copy_text(header->arch, text);
	} else if (strcmp(key, "quantize.imatrix.file") == 0) {
		copy_text(header->imatrix_file, base_name(text));
	} else if (strcmp(key, "quantize.imatrix.dataset") == 0) {
		copy_text(header->imatrix_dataset, base_name(text));
	} else if (strcmp(key, "tokenizer.chat_template") == 0 && len > 0) {
		header->chat_template = digest_of((struct bytes){(const uint8_t *)text, len});
		header->has_chat_template = true;
	}
	free(text);
	return true;
}

static bool take_number(FILE *file, uint64_t type, const char *key, struct weights_header *header)
{
	const char *dot = strrchr(key, '.');
	uint64_t value;

	if (!read_number(file, sizes[type], &value))
		return false;
	if (strcmp(key, "general.file_type") == 0) {
		if (value < COUNT_OF(file_types) && file_types[value] != NULL)
			copy_text(header->quantisation, file_types[value]);
		else
			snprintf(header->quantisation, sizeof(header->quantisation), "file_type %llu", (unsigned long long)value);
	} else if (dot != NULL && strcmp(dot, ".context_length") == 0) {
		header->context_length = (double)value;
	} else if (strcmp(key, "general.quantization_version") == 0 && value <= INT32_MAX) {
		header->quantisation_version = (int64_t)value;
	} else if (strcmp(key, "quantize.imatrix.entries_count") == 0 && value <= INT32_MAX) {
		header->imatrix_entries = (int64_t)value;
	} else if (strcmp(key, "quantize.imatrix.chunks_count") == 0 && value <= INT32_MAX) {
		header->imatrix_chunks = (int64_t)value;
	}
	return true;
}

bool gguf_read(FILE *file, struct weights_header *header)
{
	struct weights_header found = {.source = "header of the weights file (GGUF)", .quantisation_version = -1, .imatrix_entries = -1, .imatrix_chunks = -1};
	uint64_t version, tensors, keys, type;
	char magic[4];

	if (fread(magic, 1, sizeof(magic), file) != sizeof(magic) || memcmp(magic, "GGUF", sizeof(magic)) != 0)
		return false;
	if (!read_number(file, 4, &version) || version < VERSION_MIN || version > VERSION_MAX || !read_number(file, 8, &tensors) ||
	    !read_number(file, 8, &keys) || keys > GGUF_KEYS_MAX)
		return false;
	for (uint64_t i = 0; i < keys; i++) {
		size_t len;
		char *key = read_text(file, KEY_LEN_MAX, &len);
		bool ok = key != NULL && read_number(file, 4, &type) && type < TYPE_COUNT;

		if (ok && type == TYPE_STRING)
			ok = take_text(file, key, &found);
		else if (ok && (type == TYPE_UINT32 || type == TYPE_UINT64 || type == TYPE_INT32)) /* counts, all of them */
			ok = take_number(file, type, key, &found);
		else
			ok = ok && skip_value(file, type, 0);
		free(key);
		if (!ok)
			return false;
	}
	*header = found;
	return true;
}
