/* A doubly linked list whose links lie inside its members. An initialised link that is in no list points to itself. */
#pragma once

#include <stdbool.h>

struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *list)
{
	list->next = list->prev = list;
}

static inline bool list_empty(const struct list *list)
{
	return list->next == list;
}

static inline void list_add_last(struct list *list, struct list *link)
{
	link->prev = list->prev;
	link->next = list;
	list->prev->next = link;
	list->prev = link;
}

static inline void list_add_first(struct list *list, struct list *link)
{
	list_add_last(list->next, link);
}

static inline void list_remove(struct list *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	list_init(link);
}

/* Move all of `from` behind the last of `to`; `from` is empty then. */
static inline void list_move_all(struct list *to, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

/* The parameter must not be called `list`: it would replace the word in `struct list` too. */
#define LIST_EACH(link, head) for (struct list *link = (head)->next; link != (head); link = link->next)
#define LIST_EACH_SAFE(link, head) \
	for (struct list *link = (head)->next, *link##_next = link->next; link != (head); link = link##_next, link##_next = link->next)
