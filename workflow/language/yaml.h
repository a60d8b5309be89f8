/* YAML 1.2 (core schema) on libfyaml's events, behind the guards of text.c. Pure; any thread. */
#pragma once

#include "workflow/language/position.h"

enum {
	YAML_ANCHORS_MAX = 1000, /* each alias looks through them */
	YAML_BLANK_WORK_MAX = 20000000, /* of all runs of blank lines, the number of lines times their bytes: 4,400 empty ones in one place */
	YAML_BRACKETS_MAX = 1000, /* that open with at most YAML_BRACKET_GAP_MAX bytes between two */
	YAML_BRACKET_GAP_MAX = 8,
	/* Bytes of all names and texts, aliases written out. Without aliases a source stays below: two bytes of it ("\\L") make at most
	 * three. */
	YAML_TEXT_MAX = 4 << 20,
};

/* Valid UTF-8 without NUL and byte order mark comes in. NULL: problems were added. `place` may be NULL. */
struct json *yaml_read(struct arena *arena, struct bytes source, struct place **place, struct problems *problems);
