/*
 * Another extension beside nitro, for tests/beside.sh: it has the planner's and the executor's hooks, and its own function
 * around that of every node that nitro exchanges. It changes nothing and counts its calls.
 */
#include "postgres.h"

#include <limits.h>

#include "executor/executor.h"
#include "fmgr.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "utils/guc.h"
#include "utils/hsearch.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static int	rows = 0;
static int	paths = 0;
static int	uppers = 0;
static set_rel_pathlist_hook_type next_pathlist = NULL;
static create_upper_paths_hook_type next_upper = NULL;
static ExecutorStart_hook_type next_start = NULL;

/* By node: the function that was there before ours. Of a node that is gone another one at its address takes the place. */
typedef struct Wrapped
{
	PlanState  *node;
	ExecProcNodeMtd function;
} Wrapped;

static HTAB *wrapped = NULL;

static TupleTableSlot *
row(PlanState *node)
{
	Wrapped    *found = hash_search(wrapped, &node, HASH_FIND, NULL);

	rows++;
	return found->function(node);
}

static bool
wrap(PlanState *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, IndexOnlyScanState) || IsA(node, NestLoopState) || IsA(node, CustomScanState))
	{
		Wrapped    *entry = hash_search(wrapped, &node, HASH_ENTER, NULL);

		entry->function = node->ExecProcNodeReal;
		ExecSetExecProcNode(node, row);
	}
	return planstate_tree_walker(node, wrap, context);
}

static void
start(QueryDesc *query, int flags)
{
	if (next_start)
		next_start(query, flags);
	else
		standard_ExecutorStart(query, flags);
	wrap(query->planstate, NULL);
}

static void
pathlist(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	if (next_pathlist)
		next_pathlist(root, rel, rti, rte);
	paths++;
}

static void
upper(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input, RelOptInfo *output, void *extra)
{
	if (next_upper)
		next_upper(root, stage, input, output, extra);
	uppers++;
}

void
_PG_init(void)
{
	HASHCTL		form = {.keysize = sizeof(PlanState *), .entrysize = sizeof(Wrapped)};

	wrapped = hash_create("beside", 64, &form, HASH_ELEM | HASH_BLOBS);
	DefineCustomIntVariable("beside.rows", "Calls of nodes.", NULL, &rows, 0, 0, INT_MAX, PGC_INTERNAL, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("beside.paths", "Relations that were planned.", NULL, &paths, 0, 0, INT_MAX, PGC_INTERNAL, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("beside.uppers", "Steps above them that were planned.", NULL, &uppers, 0, 0, INT_MAX, PGC_INTERNAL, 0, NULL, NULL, NULL);
	next_pathlist = set_rel_pathlist_hook;
	set_rel_pathlist_hook = pathlist;
	next_upper = create_upper_paths_hook;
	create_upper_paths_hook = upper;
	next_start = ExecutorStart_hook;
	ExecutorStart_hook = start;
}
