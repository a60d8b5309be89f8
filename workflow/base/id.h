/* Identifiers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ID_LEN_MAX = 64, ID_LABEL_LEN_MAX = 63, ID_VERSION_LEN_MAX = 255 };

/* 1 to 64 of [A-Za-z0-9._-], not "." or "..": what a client may choose for a run. */
bool id_valid(const char *text);
/* A sortable id of 26 characters (Crockford base 32): 48 bits of milliseconds, 80 bits of the randomness given. */
void id_make(int64_t wall_ms, const uint8_t random[10], char id[27]);
/* A DNS label: letters, digits, hyphens inside, 1 to 63; for namespaces and names. */
bool id_valid_label(const char *text);
/* Semantic version 2.0.0, at most ID_VERSION_LEN_MAX characters. */
bool id_valid_version(const char *text);
