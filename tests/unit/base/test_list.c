/* Tests of workflow/base/list.h. */
#include "workflow/base/list.h"

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"

struct item {
	int number;
	struct list link;
};

static int read_list(struct list *list)
{
	int digits = 0;

	LIST_EACH(link, list)
		digits = digits * 10 + CONTAINER_OF(link, struct item, link)->number;
	return digits;
}

/* Items stay in order at both ends, leave from anywhere, and a removed one points to itself. */
START_TEST(items_come_and_go)
{
	struct item items[5];
	struct list list;

	list_init(&list);
	ck_assert(list_empty(&list));
	for (int i = 0; i < 5; i++) {
		items[i].number = i + 1;
		list_init(&items[i].link);
	}
	list_add_last(&list, &items[1].link);
	list_add_last(&list, &items[2].link);
	list_add_first(&list, &items[0].link);
	list_add_last(&list, &items[3].link);
	ck_assert_int_eq(read_list(&list), 1234);
	list_remove(&items[2].link);
	ck_assert(list_empty(&items[2].link));
	list_remove(&items[2].link);
	ck_assert_int_eq(read_list(&list), 124);
	LIST_EACH_SAFE(link, &list)
		list_remove(link);
	ck_assert(list_empty(&list));
}
END_TEST

/* Moving all keeps the order of both and empties the source. */
START_TEST(lists_are_joined)
{
	struct item items[4];
	struct list from, to;

	list_init(&from);
	list_init(&to);
	for (int i = 0; i < 4; i++)
		items[i].number = i + 1;
	list_move_all(&to, &from);
	ck_assert(list_empty(&to));
	list_add_last(&to, &items[0].link);
	list_add_last(&from, &items[1].link);
	list_add_last(&from, &items[2].link);
	list_move_all(&to, &from);
	ck_assert(list_empty(&from));
	list_add_last(&to, &items[3].link);
	ck_assert_int_eq(read_list(&to), 1234);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("base-list", items_come_and_go, lists_are_joined)
