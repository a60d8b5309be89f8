/* The command line `reprise`: finds the verb, runs it, ends with its exit status. Reads as a table of contents:
 * options.c parses, verbs.c lists the verbs, command_*.c are the verbs, client.c talks to the daemon, output.c prints. */
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "workflow/base/check.h"

/* A closed 0, 1 or 2 would be the number of the next file or socket, and what is printed would go there. This one can be neither written
 * nor, at its end already, read: printing to it fails, as it must. */
static void hold_standard_descriptors(void)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			CHECK(open("/dev/null", O_RDONLY) == fd);
}

int main(int argc, char **argv)
{
	struct command command;
	bool help = false;

	hold_standard_descriptors();
	memset(&command, 0, sizeof command);
	arena_init(&command.arena);
	CHECK(sodium_init() >= 0);
	CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);

	int status;
	if (argc == 2 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)) {
		printf("reprise %s\n", REPRISE_VERSION);
		status = STATUS_OK;
	} else {
		status = command_parse(&command, argc, argv, &help);
		if (status == STATUS_OK && help)
			print_help(&command, stdout);
		else if (status == STATUS_OK)
			status = command.verb->run(&command);
	}
	progress_clear(&command.output);
	/* What could not be written (a full disk) was not said: no success. */
	if ((fflush(stdout) != 0 || ferror(stdout)) && status == STATUS_OK) {
		output_note(&command.output, "reprise: writing to standard output failed");
		status = STATUS_ERROR;
	}
	if (command.client_is_open)
		client_close(&command.client);
	free(command.options);
	free(command.arguments);
	arena_close(&command.arena);
	curl_global_cleanup();
	return status;
}
