/* libFuzzer entry of the JSON parser and printer. One thread.
 *
 * Whatever is accepted prints, the print is accepted again and prints the same, and the trees are equal. By hand:
 *   clang -std=gnu17 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -I. tests/fuzz/fuzz_json.c \
 *       workflow/base/{arena,bytes,check,digest,error,json}.c -lsodium -lm -o build/fuzz_json
 *   build/fuzz_json -max_total_time=60 -dict=tests/fuzz/json.dict tests/vectors/jcs/input */
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/json.h"

enum { FUZZ_PRINT_MAX = 64 * 1024 * 1024 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct arena arena;
	struct buffer first, second, pretty;
	struct json_fault fault;
	struct error error = {0};
	struct json *json, *again;
	unsigned flags = size > 0 && data[size - 1] == ' ' ? JSON_ROUND_INTEGERS : JSON_STRICT;

	arena_init(&arena);
	buffer_init(&first, FUZZ_PRINT_MAX);
	buffer_init(&second, FUZZ_PRINT_MAX);
	buffer_init(&pretty, FUZZ_PRINT_MAX);
	json = json_parse(&arena, (struct bytes){data, size}, flags, &fault, &error);
	if (json == NULL) {
		CHECK(fault.code != JSON_OK);
		CHECK(fault.offset <= size);
		CHECK(fault.line >= 1);
		CHECK(fault.column >= 1);
		CHECK(error.code == ERR_INVALID);
		goto out;
	}
	CHECK(fault.code == JSON_OK);
	CHECK(utf8_valid((struct bytes){data, size}, NULL));
	json_print(json, &first);
	CHECK(!first.overflow);
	/* An integer of 2^53 and more that was rounded prints as an integer text that only the same flag accepts. */
	again = json_parse(&arena, buffer_bytes(&first), JSON_ROUND_INTEGERS, NULL, NULL);
	CHECK(again != NULL);
	CHECK(json_equal(json, again));
	json_print(again, &second);
	CHECK(bytes_equal(buffer_bytes(&first), buffer_bytes(&second)));
	json_print_pretty(json, &pretty);
	again = json_parse(&arena, buffer_bytes(&pretty), JSON_ROUND_INTEGERS, NULL, NULL);
	CHECK(again != NULL);
	CHECK(json_equal(json, again));
	CHECK(json_equal(json, json_copy(&arena, json)));
out:
	buffer_close(&pretty);
	buffer_close(&second);
	buffer_close(&first);
	arena_close(&arena);
	return 0;
}
