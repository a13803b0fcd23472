/*
 * Preloaded by tests/core/run.sh for runs of PostgreSQL's own tests.
 *
 * With substitute.nitro = on CREATE INDEX builds a nitro index wherever it would build a plain btree that nitro
 * can replace.
 * What nitro refuses is decided before the statement runs: CREATE INDEX CONCURRENTLY cannot be tried in a
 * subtransaction. Partitions and copies of an index (LIKE ... INCLUDING INDEXES) follow by themselves.
 *
 * In every run each statement begins with the same seed: ANALYZE takes the same sample, GiST and SP-GiST split
 * the same way, so that two runs can be compared to the last digit of a cost.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "commands/tablecmds.h"
#include "common/pg_prng.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_utilcmd.h"
#include "tcop/utility.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static bool enabled = false;
static ProcessUtility_hook_type next_utility = NULL;
static ExecutorStart_hook_type next_start = NULL;

/* A column or expression of the index: has nitro an operator class for it, also under its collation? */
static bool
replaceable_element(IndexElem *element, Oid relid, Oid nitro)
{
	Oid			type;
	Oid			collation;

	if (element->opclassopts != NIL)
		return false;
	if (element->name != NULL)
	{
		AttrNumber	number = get_attnum(relid, element->name);
		int32		typmod;

		if (number <= 0)
			return false;
		get_atttypetypmodcoll(relid, number, &type, &typmod, &collation);
	}
	else
	{
		type = exprType(element->expr);
		collation = exprCollation(element->expr);
	}
	if (element->collation != NIL)
		collation = get_collation_oid(element->collation, true);
	if (element->opclass != NIL)
		return !(OidIsValid(collation) && !get_collation_isdeterministic(collation)) &&
			OidIsValid(get_opclass_oid(nitro, element->opclass, true));
	return OidIsValid(GetDefaultOpClass(type, nitro));
}

/* The relation is locked and its owner checked as the server itself is about to do. */
static bool
replaceable(IndexStmt *stmt, const char *query)
{
	Oid			nitro = enabled ? get_am_oid("nitro", true) : InvalidOid;
	LOCKMODE	mode = stmt->concurrent ? ShareUpdateExclusiveLock : ShareLock;
	IndexStmt  *analyzed;
	Relation	rel;
	bool		takes_nitro;
	Oid			relid;
	ListCell   *cell;

	if (!OidIsValid(nitro) || strcmp(stmt->accessMethod, DEFAULT_INDEX_TYPE) != 0 ||
		(stmt->unique && PG_VERSION_NUM < 180000) || stmt->primary || stmt->isconstraint || stmt->excludeOpNames != NIL ||
		stmt->options != NIL)
		return false;
	relid = RangeVarGetRelidExtended(stmt->relation, mode, RVR_MISSING_OK,
									 RangeVarCallbackOwnsRelation, NULL);
	if (!OidIsValid(relid))
		return false;
	rel = relation_open(relid, NoLock);
	takes_nitro = rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ||
		((rel->rd_rel->relkind == RELKIND_RELATION || rel->rd_rel->relkind == RELKIND_MATVIEW) &&
		 rel->rd_rel->relam == HEAP_TABLE_AM_OID);
	relation_close(rel, NoLock);
	if (!takes_nitro)
		return false;
	analyzed = transformIndexStmt(relid, copyObject(stmt), query);
	foreach(cell, analyzed->indexParams)
	{
		if (!replaceable_element(lfirst_node(IndexElem, cell), relid, nitro))
			return false;
	}
	return true;
}

static void
utility(PlannedStmt *pstmt, const char *query, bool read_only, ProcessUtilityContext context,
		   ParamListInfo params, QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *done)
{
	if (IsA(pstmt->utilityStmt, IndexStmt) && replaceable((IndexStmt *) pstmt->utilityStmt, query))
	{
		IndexStmt  *stmt;

		/* The tree may belong to a plan cache. */
		pstmt = copyObject(pstmt);
		stmt = (IndexStmt *) pstmt->utilityStmt;
		stmt->accessMethod = pstrdup("nitro");
		ereport(LOG_SERVER_ONLY,
				(errmsg("substituted nitro for an index of \"%s\"", stmt->relation->relname)));
	}
	pg_prng_seed(&pg_global_prng_state, 1);
	if (next_utility)
		next_utility(pstmt, query, read_only, context, params, environment, dest, done);
	else
		standard_ProcessUtility(pstmt, query, read_only, context, params, environment, dest, done);
}

static void
start(QueryDesc *query, int flags)
{
	pg_prng_seed(&pg_global_prng_state, 1);
	if (next_start)
		next_start(query, flags);
	else
		standard_ExecutorStart(query, flags);
}

void
_PG_init(void)
{
	DefineCustomBoolVariable("substitute.nitro", "CREATE INDEX builds nitro instead of btree.", NULL,
							 &enabled, false, PGC_SIGHUP, 0, NULL, NULL, NULL);
	next_utility = ProcessUtility_hook;
	ProcessUtility_hook = utility;
	next_start = ExecutorStart_hook;
	ExecutorStart_hook = start;
}
