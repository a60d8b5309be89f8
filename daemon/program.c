/* See program.h. */
#include "daemon/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workflow/base/check.h"

bool program_find(const char *name, const char *built, char path[PATH_MAX])
{
	const char *const places[] = {name, built};
	char self[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	const char *folders = getenv("PATH");

	if (len > 0) {
		self[len] = 0;
		char *slash = strrchr(self, '/');
		if (slash)
			slash[1] = 0;
		for (size_t i = 0; i < COUNT_OF(places); i++)
			if (snprintf(path, PATH_MAX, "%s%s", self, places[i]) < PATH_MAX && access(path, X_OK) == 0)
				return true;
	}
	while (folders && *folders) {
		size_t part = strcspn(folders, ":");
		if (part > 0 && snprintf(path, PATH_MAX, "%.*s/%s", (int)part, folders, name) < PATH_MAX && access(path, X_OK) == 0)
			return true;
		folders += part + (folders[part] == ':');
	}
	return false;
}
