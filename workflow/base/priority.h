/* How much work for a runtime matters: the higher first (activities/slot_queue.h). */
#pragma once

enum { PRIORITY_MAX = 9, PRIORITY_USUAL = 5 };
