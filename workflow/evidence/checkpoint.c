/* Signed notes, checkpoints and proof files (C2SP signed-note, tlog-checkpoint, tlog-cosignature, tlog-proof). Pure.
 * Start at read_note(), which every reader goes through: it refuses what is out of shape before anything is believed. */
#include "workflow/evidence/checkpoint.h"

#include <inttypes.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/json.h"

enum {
	NOTE_LEN_MAX = 1 << 20,
	NOTE_SIGNATURES_MAX = 64,
	NOTE_KEY_ID_LEN = 4,
	COSIGNATURE_TIME_LEN = 8,
	DECIMAL_DIGITS_MAX = 19,
	ROOT_BASE64_LEN = 44,
};

#define EM_DASH_SPACE "\xe2\x80\x94 "
#define PROOF_FIRST_LINE "c2sp.org/tlog-proof@v1"

struct note {
	struct bytes text; /* what is signed, its last newline included */
	struct bytes signatures; /* whole lines */
};

struct note_signature {
	struct bytes name;
	uint8_t id[NOTE_KEY_ID_LEN];
	struct bytes signature; /* inside the scratch buffer: until the next line is read */
};

/* Take the next line, without its newline. Without one the rest is a line. */
static bool take_line(struct bytes *rest, struct bytes *line)
{
	const uint8_t *end;

	if (rest->len == 0)
		return false;
	end = memchr(rest->data, '\n', rest->len);
	line->data = rest->data;
	line->len = end ? (size_t)(end - rest->data) : rest->len;
	rest->data += line->len + (end ? 1 : 0);
	rest->len -= line->len + (end ? 1 : 0);
	return true;
}

/* Notes and proofs are written in the standard alphabet only; envelopes, which base64_decode() serves, may use either. */
static bool decode_base64(struct bytes text, struct buffer *out)
{
	buffer_clear(out);
	for (size_t i = 0; i < text.len; i++)
		if (text.data[i] == '-' || text.data[i] == '_')
			return false;
	return base64_decode(text, out) && !out->overflow;
}

static bool decode_digest(struct bytes text, struct digest *digest)
{
	struct buffer buffer;
	bool good;

	if (text.len != ROOT_BASE64_LEN)
		return false;
	buffer_init(&buffer, ROOT_BASE64_LEN);
	good = decode_base64(text, &buffer) && buffer.len == sizeof(digest->bytes);
	if (good)
		memcpy(digest->bytes, buffer.data, sizeof(digest->bytes));
	buffer_close(&buffer);
	return good;
}

static bool parse_decimal(struct bytes text, uint64_t *value)
{
	uint64_t sum = 0;

	if (text.len == 0 || text.len > DECIMAL_DIGITS_MAX || (text.data[0] == '0' && text.len > 1))
		return false;
	for (size_t i = 0; i < text.len; i++) {
		if (text.data[i] < '0' || text.data[i] > '9')
			return false;
		sum = sum * 10 + (uint64_t)(text.data[i] - '0'); /* 19 digits always fit */
	}
	*value = sum;
	return true;
}

static int parse_signature_line(struct bytes line, struct buffer *scratch, struct note_signature *signature, struct error *error)
{
	const size_t dash_len = sizeof(EM_DASH_SPACE) - 1;
	const uint8_t *space;

	if (line.len < dash_len || memcmp(line.data, EM_DASH_SPACE, dash_len) != 0)
		return error_set(error, ERR_INVALID, "note-shape: a signature line does not begin with a dash (U+2014) and a space");
	line.data += dash_len;
	line.len -= dash_len;
	space = memchr(line.data, ' ', line.len);
	if (!space)
		return error_set(error, ERR_INVALID, "note-shape: a signature line without a signature");
	signature->name = (struct bytes){line.data, (size_t)(space - line.data)};
	if (!note_name_valid(signature->name))
		return error_set(error, ERR_INVALID, "note-shape: a signature line with a bad key name");
	line.len -= signature->name.len + 1;
	line.data = space + 1;
	if (!decode_base64(line, scratch) || scratch->len <= NOTE_KEY_ID_LEN)
		return error_set(error, ERR_INVALID, "note-shape: a signature is not base64, or too short");
	memcpy(signature->id, scratch->data, NOTE_KEY_ID_LEN);
	signature->signature = (struct bytes){scratch->data + NOTE_KEY_ID_LEN, scratch->len - NOTE_KEY_ID_LEN};
	return 0;
}

/* Part the text from the signatures at the last blank line, and check the form of all lines. */
static int read_note(struct bytes bytes, struct buffer *scratch, struct note *note, struct error *error)
{
	struct note_signature signature;
	struct bytes rest, line;
	size_t at, count = 0;

	if (bytes.len > NOTE_LEN_MAX)
		return error_set(error, ERR_TOO_LARGE, "note-size: %zu bytes, at most %d are read", bytes.len, NOTE_LEN_MAX);
	if (!utf8_valid(bytes, &at))
		return error_set(error, ERR_INVALID, "note-utf8: not UTF-8 at byte %zu", at);
	for (at = 0; at < bytes.len; at++)
		if (bytes.data[at] < 0x20 && bytes.data[at] != '\n')
			return error_set(error, ERR_INVALID, "note-control: control character 0x%02x at byte %zu", bytes.data[at], at);
	if (bytes.len == 0 || bytes.data[bytes.len - 1] != '\n')
		return error_set(error, ERR_INVALID, "note-shape: the last byte is not a newline");
	for (at = bytes.len - 1; at > 0; at--)
		if (bytes.data[at] == '\n' && bytes.data[at - 1] == '\n')
			break;
	if (at == 0)
		return error_set(error, ERR_INVALID, "note-shape: no blank line before the signatures");
	note->text = (struct bytes){bytes.data, at};
	note->signatures = (struct bytes){bytes.data + at + 1, bytes.len - at - 1};
	for (rest = note->signatures; take_line(&rest, &line); count++) {
		if (count == NOTE_SIGNATURES_MAX)
			return error_set(error, ERR_TOO_LARGE, "note-size: more than %d signatures", NOTE_SIGNATURES_MAX);
		if (parse_signature_line(line, scratch, &signature, error) != 0)
			return error->code;
	}
	if (count == 0)
		return error_set(error, ERR_INVALID, "note-shape: no signature");
	return 0;
}

static int parse_text(struct bytes text, struct checkpoint *checkpoint, struct error *error)
{
	struct bytes rest = text, line[3], further;
	size_t count = 0;

	while (count < 3 && take_line(&rest, &line[count]) && line[count].len > 0)
		count++;
	if (count < 3)
		return error_set(error, ERR_INVALID, "checkpoint-shape: fewer than three lines, or an empty one");
	while (take_line(&rest, &further)) /* extension lines: none of ours, and no reason to refuse */
		if (further.len == 0)
			return error_set(error, ERR_INVALID, "checkpoint-shape: an empty line");
	if (line[0].len > NOTE_NAME_MAX)
		return error_set(error, ERR_INVALID, "checkpoint-shape: origin of %zu bytes, at most %d are read", line[0].len, NOTE_NAME_MAX);
	if (!parse_decimal(line[1], &checkpoint->size))
		return error_set(error, ERR_INVALID, "checkpoint-shape: the second line is not a size");
	if (!decode_digest(line[2], &checkpoint->root))
		return error_set(error, ERR_INVALID, "checkpoint-shape: the third line is not base64 of 32 bytes");
	memset(checkpoint->origin, 0, sizeof(checkpoint->origin));
	memcpy(checkpoint->origin, line[0].data, line[0].len);
	return 0;
}

void checkpoint_print_text(const struct checkpoint *checkpoint, struct buffer *out)
{
	buffer_printf(out, "%s\n%" PRIu64 "\n", checkpoint->origin, checkpoint->size);
	base64_add(out, (struct bytes){checkpoint->root.bytes, sizeof(checkpoint->root.bytes)});
	buffer_add_char(out, '\n');
}

void checkpoint_sign(const struct checkpoint *checkpoint, const struct secret_key *log_key, struct buffer *note)
{
	uint8_t signature[NOTE_KEY_ID_LEN + KEY_SIGNATURE_LEN];
	struct note_key key;
	struct buffer text;

	CHECK(note_key_init(&key, checkpoint->origin, NOTE_KEY_LOG, &log_key->public, NULL) == 0);
	buffer_init(&text, NOTE_LEN_MAX);
	checkpoint_print_text(checkpoint, &text);
	memcpy(signature, key.id, sizeof(key.id));
	key_sign(log_key, buffer_bytes(&text), signature + NOTE_KEY_ID_LEN);
	buffer_add_bytes(note, buffer_bytes(&text));
	buffer_printf(note, "\n" EM_DASH_SPACE "%s ", checkpoint->origin);
	base64_add(note, (struct bytes){signature, sizeof(signature)});
	buffer_add_char(note, '\n');
	buffer_close(&text);
}

static bool is_by(const struct note_signature *signature, const struct note_key *key)
{
	return bytes_equal_text(signature->name, key->name) && memcmp(signature->id, key->id, sizeof(key->id)) == 0;
}

int checkpoint_parse(struct bytes note_bytes, struct checkpoint *checkpoint, struct error *error)
{
	struct error own;
	struct buffer scratch;
	struct note note;
	int code;

	error = error ? error : &own;
	buffer_init(&scratch, NOTE_LEN_MAX);
	code = read_note(note_bytes, &scratch, &note, error);
	if (code == 0)
		code = parse_text(note.text, checkpoint, error);
	buffer_close(&scratch);
	return code;
}

int checkpoint_open(struct bytes note_bytes, const struct note_key *key, struct checkpoint *checkpoint, struct error *error)
{
	struct error own;
	struct buffer scratch;
	struct note_signature signature;
	struct note note;
	struct bytes rest, line;
	struct digest empty = digest_of((struct bytes){0});
	size_t found = 0;
	int code;

	error = error ? error : &own;
	buffer_init(&scratch, NOTE_LEN_MAX);
	code = read_note(note_bytes, &scratch, &note, error);
	if (code == 0)
		code = parse_text(note.text, checkpoint, error);
	if (code != 0)
		goto done;
	if (strcmp(checkpoint->origin, key->name) != 0) {
		code = error_set(error, ERR_CORRUPT, "checkpoint-origin: it is of another log than the key's, %s", key->name);
		goto done;
	}
	/* Signatures of unknown keys are nobody's business; one that claims to be this key's has to be good. */
	for (rest = note.signatures; take_line(&rest, &line);) {
		CHECK(parse_signature_line(line, &scratch, &signature, error) == 0);
		if (!is_by(&signature, key))
			continue;
		found++;
		if (!key_verify(&key->public, note.text, signature.signature)) {
			code = error_set(error, ERR_CORRUPT, "checkpoint-signature: the log key did not sign this");
			goto done;
		}
	}
	if (found == 0)
		code = error_set(error, ERR_CORRUPT, "checkpoint-unsigned: no signature by the log key");
	else if (checkpoint->size == 0 && !digest_equal(&checkpoint->root, &empty))
		code = error_set(error, ERR_CORRUPT, "checkpoint-root: size 0 with a root that is not the empty one");
done:
	buffer_close(&scratch);
	return code;
}

/* The signed text of a witness differs from the log's: it also says when. */
static int check_cosignature(struct bytes text, const struct note_signature *signature, const struct note_key *witness, uint64_t *time_s,
			     struct error *error)
{
	struct buffer message;
	uint64_t seconds = 0;
	bool good;

	if (signature->signature.len != COSIGNATURE_TIME_LEN + KEY_SIGNATURE_LEN)
		return error_set(error, ERR_CORRUPT, "cosignature-shape: %zu bytes by witness %s", signature->signature.len, witness->name);
	for (size_t i = 0; i < COSIGNATURE_TIME_LEN; i++)
		seconds = seconds << 8 | signature->signature.data[i];
	if (seconds == 0 || seconds > INT64_MAX)
		return error_set(error, ERR_CORRUPT, "cosignature-time: witness %s gives no time", witness->name);
	buffer_init(&message, NOTE_LEN_MAX + 64);
	buffer_printf(&message, "cosignature/v1\ntime %" PRIu64 "\n", seconds);
	buffer_add_bytes(&message, text);
	good = key_verify(&witness->public, buffer_bytes(&message),
			  (struct bytes){signature->signature.data + COSIGNATURE_TIME_LEN, KEY_SIGNATURE_LEN});
	buffer_close(&message);
	if (!good)
		return error_set(error, ERR_CORRUPT, "cosignature-invalid: witness %s did not sign this", witness->name);
	*time_s = seconds;
	return 0;
}

int checkpoint_open_cosignature(struct bytes note_bytes, const struct note_key *witness, uint64_t *time_s, struct error *error)
{
	struct error own;
	struct buffer scratch;
	struct note_signature signature;
	struct checkpoint checkpoint;
	struct note note;
	struct bytes rest, line;
	size_t found = 0;
	int code;

	error = error ? error : &own;
	CHECK(witness->type == NOTE_KEY_COSIGNER);
	buffer_init(&scratch, NOTE_LEN_MAX);
	code = read_note(note_bytes, &scratch, &note, error);
	if (code == 0)
		code = parse_text(note.text, &checkpoint, error);
	if (code != 0)
		goto done;
	for (rest = note.signatures; take_line(&rest, &line);) {
		uint64_t seconds = 0;

		CHECK(parse_signature_line(line, &scratch, &signature, error) == 0);
		if (!is_by(&signature, witness))
			continue;
		code = check_cosignature(note.text, &signature, witness, &seconds, error);
		if (code != 0)
			goto done;
		/* Of several the first counts: more of them say no more. */
		if (found++ == 0)
			*time_s = seconds;
	}
	if (found == 0)
		code = error_set(error, ERR_NOT_FOUND, "witness %s has not signed", witness->name);
done:
	buffer_close(&scratch);
	return code;
}

static void print_hashes(const struct log_proof *proof, struct buffer *out)
{
	for (size_t i = 0; i < proof->count; i++) {
		base64_add(out, (struct bytes){proof->hashes[i].bytes, sizeof(proof->hashes[i].bytes)});
		buffer_add_char(out, '\n');
	}
}

static int parse_hash(struct bytes line, struct log_proof *proof, struct error *error)
{
	if (proof->count == LOG_PROOF_MAX)
		return error_set(error, ERR_TOO_LARGE, "proof-shape: more than %d hashes", LOG_PROOF_MAX);
	if (!decode_digest(line, &proof->hashes[proof->count]))
		return error_set(error, ERR_INVALID, "proof-shape: hash %zu is not base64 of 32 bytes", proof->count + 1);
	proof->count++;
	return 0;
}

void proof_file_print(uint64_t index, const struct log_proof *proof, struct bytes note, struct buffer *out)
{
	buffer_printf(out, PROOF_FIRST_LINE "\nindex %" PRIu64 "\n", index);
	print_hashes(proof, out);
	buffer_add_char(out, '\n');
	buffer_add_bytes(out, note);
}

static bool begins_with(struct bytes line, const char *text)
{
	size_t len = strlen(text);

	return line.len >= len && memcmp(line.data, text, len) == 0;
}

int proof_file_parse(struct bytes text, uint64_t *index, struct log_proof *proof, struct bytes *note, struct error *error)
{
	struct bytes rest = text, line = {0};
	bool blank = false;

	proof->count = 0;
	if (text.len > NOTE_LEN_MAX)
		return error_set(error, ERR_TOO_LARGE, "proof-shape: %zu bytes, at most %d are read", text.len, NOTE_LEN_MAX);
	if (!take_line(&rest, &line) || !bytes_equal_text(line, PROOF_FIRST_LINE))
		return error_set(error, ERR_INVALID, "proof-shape: the first line is not \"" PROOF_FIRST_LINE "\"");
	if (!take_line(&rest, &line))
		return error_set(error, ERR_INVALID, "proof-shape: no index line");
	if (begins_with(line, "extra ")) { /* An application's own data; we have none and pass over others'. */
		struct buffer scratch;
		bool good;

		buffer_init(&scratch, NOTE_LEN_MAX);
		good = decode_base64((struct bytes){line.data + 6, line.len - 6}, &scratch);
		buffer_close(&scratch);
		if (!good || !take_line(&rest, &line))
			return error_set(error, ERR_INVALID, "proof-shape: bad extra line, or nothing behind it");
	}
	if (!begins_with(line, "index ") || !parse_decimal((struct bytes){line.data + 6, line.len - 6}, index))
		return error_set(error, ERR_INVALID, "proof-shape: no index line");
	while (!blank && take_line(&rest, &line)) {
		if (line.len == 0) {
			blank = true;
		} else {
			int code = parse_hash(line, proof, error);

			if (code != 0)
				return code;
		}
	}
	if (!blank)
		return error_set(error, ERR_INVALID, "proof-shape: no blank line before the checkpoint");
	*note = rest;
	return 0;
}

void consistency_file_print(const struct log_proof *proof, struct buffer *out)
{
	print_hashes(proof, out);
}

int consistency_file_parse(struct bytes text, struct log_proof *proof, struct error *error)
{
	struct bytes rest = text, line;

	proof->count = 0;
	if (text.len > 0 && text.data[text.len - 1] != '\n')
		return error_set(error, ERR_INVALID, "proof-shape: the last byte is not a newline");
	while (take_line(&rest, &line)) {
		int code = parse_hash(line, proof, error);

		if (code != 0)
			return code;
	}
	return 0;
}
