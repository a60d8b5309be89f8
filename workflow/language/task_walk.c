/* See task_walk.h. */
#include "workflow/language/task_walk.h"

#include "workflow/base/check.h"

enum { POINTER_BYTES_MAX = 4 << 20 };

struct walk {
	task_visitor visit;
	void *arg;
	struct buffer pointer;
};

static void go_back(struct walk *w, size_t len)
{
	w->pointer.len = len;
	if (w->pointer.data)
		w->pointer.data[len] = '\0';
}

static bool visit_list(struct walk *w, const struct json *list);

static bool visit_task(struct walk *w, struct json *task)
{
	static const char *const lists[][2] = {{"do"}, {"try"}, {"catch", "do"}, {"fork", "branches"}, {"foreach", "do"}};
	size_t len = w->pointer.len;
	bool stop = w->visit(w->arg, task, buffer_text(&w->pointer));

	for (size_t i = 0; i < COUNT_OF(lists) && !stop; i++) {
		const struct json *list = json_get(task, lists[i][0]);
		json_pointer_add(&w->pointer, lists[i][0]);
		if (lists[i][1]) {
			list = json_get(list, lists[i][1]);
			json_pointer_add(&w->pointer, lists[i][1]);
		}
		stop = visit_list(w, list);
		go_back(w, len);
	}
	return stop;
}

static bool visit_members(struct walk *w, const struct json *tasks)
{
	size_t len = w->pointer.len;
	bool stop = false;

	for (size_t i = 0; json_is(tasks, JSON_OBJECT) && i < json_count(tasks) && !stop; i++) {
		json_pointer_add(&w->pointer, tasks->object.members[i].name);
		stop = visit_task(w, tasks->object.members[i].value);
		go_back(w, len);
	}
	return stop;
}

static bool visit_list(struct walk *w, const struct json *list)
{
	size_t len = w->pointer.len;
	bool stop = false;

	for (size_t i = 0; json_is(list, JSON_ARRAY) && i < json_count(list) && !stop; i++) {
		buffer_printf(&w->pointer, "/%zu", i);
		stop = visit_members(w, json_at(list, i));
		go_back(w, len);
	}
	return stop;
}

bool tasks_visit(const struct json *document, task_visitor visit, void *arg)
{
	struct walk w = {.visit = visit, .arg = arg};

	buffer_init(&w.pointer, POINTER_BYTES_MAX);
	json_pointer_add(&w.pointer, "do");
	bool stop = visit_list(&w, json_get(document, "do"));
	go_back(&w, 0);
	json_pointer_add(&w.pointer, "use");
	json_pointer_add(&w.pointer, "functions");
	stop = stop || visit_members(&w, json_get(json_get(document, "use"), "functions"));
	buffer_close(&w.pointer);
	return stop;
}
