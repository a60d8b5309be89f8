/* Percent-encoding (RFC 3986, 2.1), the one place that writes it. Pure. */
#pragma once

#include "workflow/base/bytes.h"

enum url_keep {
	URL_KEEP_UNRESERVED, /* letters, digits and -._~: a value that is to stand in a path or a query as it is meant */
	URL_KEEP_LEGAL, /* whatever may stand in a URL: text of one, with its own slashes and percent signs */
};

/* Adds text to out, every other byte as %XX. */
void url_encode(struct buffer *out, struct bytes text, enum url_keep keep);
