/* Numbers and bytes in few bytes, for what only this program reads again (snapshots): seven bits a byte, the lowest first. Pure. */
#pragma once

#include "workflow/base/bytes.h"

void packed_put(struct buffer *out, uint64_t number);
void packed_put_bytes(struct buffer *out, struct bytes bytes); /* their number first */
/* Take one from the front. False: it ends before, or is none; *from is not to be used then. */
bool packed_take(struct bytes *from, uint64_t *number);
bool packed_take_bytes(struct bytes *from, struct bytes *bytes); /* they stay where they are */
