/* Hexadecimal digits as others write them: percent-encoding, escapes. Digests, which take lower case alone, are digest.h's. Pure. */
#pragma once

/* 0 to 15; -1: c (a character, or the -1 of an end) is no such digit. */
static inline int hex_value(int c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}
