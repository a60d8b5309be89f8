export REPRISED=/work/wt/me/build-a/daemon/reprised REPRISE=/work/wt/me/build-a/cli/reprise REPRISE_SIM=/work/wt/me/build-a/tests/sim/reprise-sim REPRISE_JQ=/work/wt/me/build-a/activities/reprise-jq
