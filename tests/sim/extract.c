/* The extraction rules of the simulator. Pure. Start at extract_find(): blocks, then sentences, then phrases. */
#include "tests/sim/extract.h"

#include <string.h>

#include "workflow/base/check.h"

enum { MATCHES_MAX = 32 /* phrases looked at in one sentence */ };

/* What ends an object. LOOSE: an "in Berlin" or "on Monday" belongs to it; TIGHT: it does not. */
enum object_end { LOOSE, TIGHT };

struct phrase {
	const char *text; /* between subject and object, one space on each side */
	const char *predicate;
	enum object_end end;
};

static const struct phrase phrases[] = {
	{" was founded in ", "founded_in", LOOSE},
	{" were founded in ", "founded_in", LOOSE},
	{" was established in ", "founded_in", LOOSE},
	{" is located in ", "located_in", LOOSE},
	{" are located in ", "located_in", LOOSE},
	{" is based in ", "located_in", LOOSE},
	{" is headquartered in ", "located_in", LOOSE},
	{" stands in ", "located_in", LOOSE},
	{" lies in ", "located_in", LOOSE},
	{" was born in ", "born_in", LOOSE},
	{" acquired ", "acquired", TIGHT},
	{" bought ", "acquired", TIGHT},
	{" works at ", "works_at", TIGHT},
	{" works for ", "works_at", TIGHT},
	{" released ", "released", TIGHT},
	{" costs ", "price", TIGHT},
	{" reports to ", "reports_to", TIGHT},
	{" measured ", "measured", TIGHT},
	{" measures ", "measured", TIGHT},
	{" uses ", "uses", TIGHT},
	{" runs on ", "uses", TIGHT},
	{" is part of ", "part_of", LOOSE},
	{" is a part of ", "part_of", LOOSE},
	{" is a division of ", "part_of", LOOSE},
	{" belongs to ", "part_of", LOOSE},
	{" leads ", "leads", TIGHT},
	{" has led ", "leads", TIGHT},
	{" was funded by ", "funded_by", TIGHT},
	{" is funded by ", "funded_by", TIGHT},
	{" started on ", "started_on", LOOSE},
	{" began on ", "started_on", LOOSE},
	{" opened on ", "started_on", LOOSE},
	{" ended on ", "ended_on", LOOSE},
	{" closed on ", "ended_on", LOOSE},
	{" finished on ", "ended_on", LOOSE},
};

/* "price of X is Y": the subject stands behind the word. */
static const struct phrase heads[] = {
	{"price of ", "price", TIGHT},
	{"version of ", "version_of", TIGHT},
};

static const char *const object_ends[] = { /* for both; behind ", " four digits go on: "March 5, 2019" */
	", ", "; ", ": ", " (", " \xe2\x80\x93 ", " \xe2\x80\x94 ", " - ", " but ", " while ", " because ", " after ", " before ",
	" since ", " when ", " which ", " who ", " that ", " where ", " as ", " with ", " by ", NULL
};
static const char *const object_ends_tight[] = {" in ", " on ", " at ", " from ", " to ", " for ", " into ", " during ", NULL};

/* A sentence whose subject is one of these says nothing without its neighbours. */
static const char *const pronouns[] = {"It", "He", "She", "They", "This", "That", "These", "Those", "We", "I", "You", "There",
	"Who", "Which", "What", "Nobody", "Nothing", "it", "he", "she", "they", "this", "that", "these", "those", "we", "you",
	"who", "which", "there", NULL};
/* The last word before the phrase: it denies, plans, or makes another phrase of it ("was acquired"). */
static const char *const deniers[] = {"not", "never", "no", "may", "might", "could", "would", "will", "should", "can", "cannot",
	"to", "and", "but", "or", "longer", "hardly", "nearly", "almost", "was", "were", "is", "are", "be", "been", "being", "rarely", "seldom", NULL};
static const char *const fillers[] = {"also", "now", "still", "currently", "today", "then", "later", "just", "has", "have", "had",
	"who", "which", NULL};
static const char *const articles[] = {"The ", "the ", "A ", "a ", "An ", "an ", NULL};
static const char *const joints[] = {", ", "; ", "and ", "but ", "while ", "also ", NULL};
static const char *const bare_joints[] = {"and", "but", "while", NULL}; /* nothing else between two phrases */
static const char *const bad_object_starts[] = {"of ", "by ", "to ", "not ", "in ", "on ", "and ", "or ", "called ", NULL};
static const char *const bad_subject_starts[] = {"No ", "If ", "When ", "Whether ", "Unless ", "no ", "if ", "when ", NULL};
static const char *const abbreviations[] = {"Dr", "Mr", "Mrs", "Ms", "Prof", "St", "No", NULL};

/* A part of the collapsed sentence. */
struct span {
	size_t start, end;
};

struct match {
	const struct phrase *phrase;
	size_t start;        /* of the phrase: the subject ends here */
	size_t object_start;
	struct span subject; /* heads only */
};

struct sentence {
	char text[EXTRACT_SENTENCE_MAX + 1]; /* collapsed, without its end mark */
	size_t len;
};

static bool starts_with(const char *text, size_t len, const char *prefix)
{
	size_t prefix_len = strlen(prefix);

	return len >= prefix_len && memcmp(text, prefix, prefix_len) == 0;
}

static bool starts_with_any(const char *text, size_t len, const char *const *prefixes)
{
	for (; *prefixes != NULL; prefixes++) {
		if (starts_with(text, len, *prefixes))
			return true;
	}
	return false;
}

static bool is_any(const char *text, size_t len, const char *const *words)
{
	for (; *words != NULL; words++) {
		if (strlen(*words) == len && memcmp(text, *words, len) == 0)
			return true;
	}
	return false;
}

static bool is_space(uint8_t c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* What a name may start with: a capital, a digit, a quotation mark, or any letter beyond ASCII. */
static bool starts_name(uint8_t c)
{
	return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c >= 0x80 || c == '"' || c == '\'' || c == '$';
}

static void trim(const struct sentence *sentence, struct span *span)
{
	while (span->start < span->end && sentence->text[span->start] == ' ')
		span->start++;
	while (span->end > span->start && strchr(" ,;:", sentence->text[span->end - 1]) != NULL)
		span->end--;
}

static void skip_prefixes(const struct sentence *sentence, struct span *span, const char *const *prefixes, bool again)
{
	bool found;

	do {
		found = false;
		for (const char *const *prefix = prefixes; *prefix != NULL && !found; prefix++) {
			if (starts_with(sentence->text + span->start, span->end - span->start, *prefix)) {
				span->start += strlen(*prefix);
				found = true;
			}
		}
	} while (found && again);
}

static struct span last_word(const struct sentence *sentence, struct span span)
{
	struct span word = {span.end, span.end};

	while (word.start > span.start && sentence->text[word.start - 1] != ' ')
		word.start--;
	return word;
}

/* ---- One sentence ---- */

static size_t find_matches(const struct sentence *sentence, struct match matches[MATCHES_MAX])
{
	size_t count = 0;
	size_t busy_until = 0; /* phrases do not overlap */

	for (size_t at = 0; at < sentence->len && count < MATCHES_MAX; at++) {
		const char *text = sentence->text + at;
		size_t left = sentence->len - at;

		if (at < busy_until)
			continue;
		if (*text == ' ') {
			for (size_t i = 0; i < COUNT_OF(phrases); i++) {
				if (text[1] != phrases[i].text[1] || !starts_with(text, left, phrases[i].text))
					continue;
				matches[count++] = (struct match){&phrases[i], at, at + strlen(phrases[i].text), {0, 0}};
				/* Its last space may be the first of the next. */
				busy_until = at + strlen(phrases[i].text) - 1;
				break;
			}
		}
		if ((*text == 'p' || *text == 'v') && (at == 0 || text[-1] == ' ')) {
			for (size_t i = 0; i < COUNT_OF(heads); i++) {
				const char *is;

				if (!starts_with(text, left, heads[i].text))
					continue;
				is = memmem(text, left, " is ", 4);
				if (is == NULL)
					continue;
				matches[count] = (struct match){&heads[i], at, (size_t)(is - sentence->text) + 4, {0, 0}};
				matches[count].subject = (struct span){at + strlen(heads[i].text), (size_t)(is - sentence->text)};
				busy_until = matches[count++].object_start - 1;
				break;
			}
		}
	}
	return count;
}

/* " and " ends an object when a further phrase follows it or a small letter does: "Smith and Sons" stays whole. */
static bool ends_at_and(const struct sentence *sentence, size_t at, bool phrase_follows)
{
	if (!starts_with(sentence->text + at, sentence->len - at, " and "))
		return false;
	return phrase_follows || !starts_name((uint8_t)sentence->text[at + 5]);
}

static struct span find_object(const struct sentence *sentence, const struct match *match, const struct match *next)
{
	struct span object = {match->object_start, next != NULL ? next->start : sentence->len};

	for (size_t at = object.start; at < object.end; at++) {
		const char *text = sentence->text + at;
		size_t left = sentence->len - at;

		if (strchr(" ,;:", *text) == NULL)
			continue;
		if (starts_with(text, left, ", ") && left >= 6 && strspn(text + 2, "0123456789") == 4)
			continue;
		if (starts_with_any(text, left, object_ends) || ends_at_and(sentence, at, next != NULL) ||
		    (match->phrase->end == TIGHT && starts_with_any(text, left, object_ends_tight))) {
			object.end = at;
			break;
		}
	}
	return object;
}

/* The subject stands between the last object and the phrase; nothing there means the subject of the last fact. */
static bool find_subject(const struct sentence *sentence, struct span span, const struct span *before, struct span *subject)
{
	struct span word;

	trim(sentence, &span);
	skip_prefixes(sentence, &span, joints, true);
	if (is_any(sentence->text + span.start, span.end - span.start, bare_joints))
		span.start = span.end;
	for (word = last_word(sentence, span); span.end > span.start; word = last_word(sentence, span)) {
		const char *text = sentence->text + word.start;

		if (is_any(text, word.end - word.start, deniers))
			return false;
		if (!is_any(text, word.end - word.start, fillers) && !starts_with(text, word.end - word.start, "n't"))
			break;
		span.end = word.start;
		trim(sentence, &span);
	}
	if (span.end == span.start) {
		*subject = before != NULL ? *before : span;
		return before != NULL;
	}
	/* "In 1999, Acme": what follows the last comma, when it looks like a name. */
	for (size_t at = span.end; at > span.start + 1; at--) {
		if (sentence->text[at - 2] == ',' && sentence->text[at - 1] == ' ') {
			struct span tail = {at, span.end};

			skip_prefixes(sentence, &tail, joints, true);
			skip_prefixes(sentence, &tail, articles, false);
			if (starts_name((uint8_t)sentence->text[tail.start]))
				span = tail;
			break;
		}
	}
	/* "Acme, a firm from Brno,": the name comes first. */
	for (size_t at = span.start; at + 1 < span.end; at++) {
		if (sentence->text[at] == ',' && sentence->text[at + 1] == ' ')
			span.end = at;
	}
	if (starts_with_any(sentence->text + span.start, span.end - span.start, bad_subject_starts) ||
	    memmem(sentence->text + span.start, span.end - span.start, " that ", 6) != NULL) /* "Some think that Acme" */
		return false;
	skip_prefixes(sentence, &span, articles, false);
	*subject = span;
	return true;
}

static bool good_parts(const struct sentence *sentence, struct span subject, struct span object)
{
	size_t subject_len = subject.end - subject.start, object_len = object.end - object.start;
	struct span first = {subject.start, subject.start};

	if (subject_len == 0 || subject_len > EXTRACT_SUBJECT_MAX || object_len == 0 || object_len > EXTRACT_OBJECT_MAX)
		return false;
	while (first.end < subject.end && sentence->text[first.end] != ' ')
		first.end++;
	if (is_any(sentence->text + first.start, first.end - first.start, pronouns))
		return false;
	return !starts_with_any(sentence->text + object.start, object_len, bad_object_starts);
}

static struct bytes copy_span(const struct sentence *sentence, struct span span, struct arena *arena)
{
	return arena_bytes(arena, (struct bytes){(const uint8_t *)sentence->text + span.start, span.end - span.start});
}

static void grow(struct extract_facts *facts, struct arena *arena)
{
	size_t cap = facts->cap > 0 ? facts->cap * 2 : 8;
	struct extract_fact *larger = arena_alloc(arena, cap * sizeof(*larger));

	if (facts->count > 0)
		memcpy(larger, facts->facts, facts->count * sizeof(*larger));
	facts->facts = larger;
	facts->cap = cap;
}

static void find_in_sentence(struct bytes quote, struct arena *arena, struct extract_facts *facts)
{
	struct sentence sentence;
	struct match matches[MATCHES_MAX];
	struct span subject = {0, 0};
	bool have_subject = false;
	size_t count, left_end = 0;

	if (quote.len > EXTRACT_SENTENCE_MAX || quote.data[quote.len - 1] == '?')
		return;
	sentence.len = 0;
	for (size_t i = 0; i < quote.len; i++) {
		if (!is_space(quote.data[i]))
			sentence.text[sentence.len++] = (char)quote.data[i];
		else if (sentence.len > 0 && sentence.text[sentence.len - 1] != ' ')
			sentence.text[sentence.len++] = ' ';
	}
	while (sentence.len > 0 && strchr(".! ", sentence.text[sentence.len - 1]) != NULL)
		sentence.len--;
	if (sentence.len >= 3 && memcmp(sentence.text + sentence.len - 3, "\xe3\x80\x82", 3) == 0)
		sentence.len -= 3;
	sentence.text[sentence.len] = '\0';

	count = find_matches(&sentence, matches);
	for (size_t i = 0; i < count && facts->count < EXTRACT_FACTS_MAX; i++) {
		const struct match *next = i + 1 < count ? &matches[i + 1] : NULL;
		struct span object = find_object(&sentence, &matches[i], next);
		struct span before = subject;
		struct extract_fact *fact;

		if (matches[i].subject.end > 0) {
			subject = matches[i].subject;
			skip_prefixes(&sentence, &subject, articles, false);
			have_subject = true;
		} else {
			have_subject = find_subject(&sentence, (struct span){left_end, matches[i].start},
				have_subject ? &before : NULL, &subject);
		}
		left_end = object.end;
		trim(&sentence, &object);
		skip_prefixes(&sentence, &object, articles, false);
		if (!have_subject || !good_parts(&sentence, subject, object)) {
			have_subject = false;
			continue;
		}
		if (facts->count == facts->cap)
			grow(facts, arena);
		fact = &facts->facts[facts->count++];
		fact->subject = copy_span(&sentence, subject, arena);
		fact->object = copy_span(&sentence, object, arena);
		fact->predicate = matches[i].phrase->predicate;
		fact->quote = quote;
	}
}

/* ---- Sentences of a paragraph ---- */

/* "Dr." and "J." do not end a sentence. */
static bool is_abbreviation(const uint8_t *text, size_t start, size_t dot)
{
	size_t word = dot;

	while (word > start && !is_space(text[word - 1]))
		word--;
	if (dot - word == 1 && text[word] >= 'A' && text[word] <= 'Z')
		return true;
	return is_any((const char *)text + word, dot - word, abbreviations);
}

static void find_in_paragraph(struct bytes section, size_t start, size_t end, struct arena *arena, struct extract_facts *facts)
{
	const uint8_t *text = section.data;

	while (start < end && facts->count < EXTRACT_FACTS_MAX) {
		size_t at = start;

		while (start < end && is_space(text[start]))
			start++;
		for (at = start; at < end; at++) {
			if (text[at] == '.' || text[at] == '!' || text[at] == '?') {
				if ((at + 1 == end || is_space(text[at + 1])) && !(text[at] == '.' && is_abbreviation(text, start, at))) {
					at++;
					break;
				}
			} else if (text[at] == 0xe3 && at + 2 < end && text[at + 1] == 0x80 && text[at + 2] == 0x82) {
				at += 3; /* the full stop of Chinese and Japanese: no space follows it */
				break;
			}
		}
		if (at == end) {
			while (at > start && is_space(text[at - 1]))
				at--;
		}
		if (at == start)
			break;
		find_in_sentence((struct bytes){text + start, at - start}, arena, facts);
		start = at;
	}
}

/* Bytes of a list mark ("- ", "* ", "+ ", "• ", "1. ", "1) ") or quote mark ("> ") with its indentation; 0: none. */
static size_t list_mark(const uint8_t *line, size_t len)
{
	size_t at = 0, digits;

	while (at < len && (line[at] == ' ' || line[at] == '\t'))
		at++;
	if (at + 1 < len && strchr("-*+>", line[at]) != NULL && line[at + 1] == ' ')
		return at + 2;
	if (starts_with((const char *)line + at, len - at, "\xe2\x80\xa2 "))
		return at + 4;
	for (digits = 0; at + digits < len && digits < 9 && line[at + digits] >= '0' && line[at + digits] <= '9'; digits++)
		;
	if (digits > 0 && at + digits + 1 < len && (line[at + digits] == '.' || line[at + digits] == ')') && line[at + digits + 1] == ' ')
		return at + digits + 2;
	return 0;
}

void extract_find(struct bytes section, struct arena *arena, struct extract_facts *facts)
{
	size_t paragraph = 0, line = 0; /* offsets; the paragraph's text so far is [paragraph, line) */
	bool in_code = false;

	memset(facts, 0, sizeof(*facts));
	while (line < section.len) {
		const uint8_t *text = section.data + line;
		const uint8_t *newline = memchr(text, '\n', section.len - line);
		size_t len = newline != NULL ? (size_t)(newline - text) : section.len - line;
		size_t next = line + len + (newline != NULL);
		size_t indent = 0, mark = list_mark(text, len);
		bool fence;

		while (indent < len && is_space(text[indent]))
			indent++;
		fence = starts_with((const char *)text + indent, len - indent, "```");
		if (fence || in_code || indent == len || text[indent] == '#' || text[indent] == '|') {
			find_in_paragraph(section, paragraph, line, arena, facts);
			paragraph = next;
		} else if (mark > 0) {
			find_in_paragraph(section, paragraph, line, arena, facts);
			paragraph = line + mark;
		}
		in_code ^= fence;
		line = next;
	}
	find_in_paragraph(section, paragraph, section.len, arena, facts);
}
