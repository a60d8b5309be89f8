/* Workflows that ship with the daemon: every built-in verb of the command line is an ordinary definition, registered at the
 * first start like anybody's (semantics.md 4). A change here needs a new version: what was registered stays as it is. */
#include "daemon/daemon.h"
#include "workflow/base/check.h"

const char *const built_in_definitions[] = {
	"# reprise extract DOCUMENT\n"
	"document:\n"
	"  dsl: '1.0.3'\n"
	"  namespace: reprise\n"
	"  name: extract\n"
	"  version: '1.0.0'\n"
	"  title: Extract facts from a document\n"
	"do:\n"
	"  - facts:\n"
	"      call: extraction\n"
	"      with:\n"
	"        runtime: '${ .runtime }'\n"
	"        document: '${ .document }'\n",

	"# reprise infer PROMPT\n"
	"document:\n"
	"  dsl: '1.0.3'\n"
	"  namespace: reprise\n"
	"  name: infer\n"
	"  version: '1.0.0'\n"
	"  title: Ask a model once\n"
	"do:\n"
	"  - answer:\n"
	"      call: inference\n"
	"      with:\n"
	"        runtime: '${ .runtime }'\n"
	"        prompt: '${ .prompt }'\n"
	"        sampling: '${ .sampling }'\n",

	"# reprise gate RUNTIME\n"
	"document:\n"
	"  dsl: '1.0.3'\n"
	"  namespace: reprise\n"
	"  name: gate\n"
	"  version: '1.0.0'\n"
	"  title: Measure whether a runtime repeats itself\n"
	"do:\n"
	"  - gate:\n"
	"      call: reproducibility-gate\n"
	"      with:\n"
	"        runtime: '${ .runtime }'\n"
	"        requests: '${ .requests }'\n"
	"        seeds: '${ .seeds }'\n"
	"        messages: '${ .request.messages }'\n"
	"        prompt: '${ .request.prompt }'\n"
	"        sampling: '${ .request.sampling }'\n"
	"        between: '${ .between }'\n",
};
const size_t built_in_definition_count = COUNT_OF(built_in_definitions);
