/*
 * Hides relations whose names begin with "shard_" from every query on pg_class, as Citus hides
 * shards: by one more condition for each place where a query reads pg_class, added before the query
 * is planned.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/planner.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static planner_hook_type next_planner = NULL;

/* NOT starts_with(relname::text, 'shard_') */
static Node *
visible(Index table)
{
	Var		   *name = makeVar(table, Anum_pg_class_relname, NAMEOID, -1, C_COLLATION_OID, 0);
	FuncExpr   *text = makeFuncExpr(F_TEXT_NAME, TEXTOID, list_make1(name),
									DEFAULT_COLLATION_OID, C_COLLATION_OID, COERCE_EXPLICIT_CAST);
	Const	   *prefix = makeConst(TEXTOID, -1, DEFAULT_COLLATION_OID, -1,
								   CStringGetTextDatum("shard_"), false, false);
	FuncExpr   *begins = makeFuncExpr(F_STARTS_WITH, BOOLOID, list_make2(text, prefix),
									  InvalidOid, DEFAULT_COLLATION_OID, COERCE_EXPLICIT_CALL);

	return (Node *) makeBoolExpr(NOT_EXPR, list_make1(begins), -1);
}

static bool
hide(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query	   *query = (Query *) node;
		ListCell   *cell;

		foreach(cell, query->rtable)
		{
			RangeTblEntry *table = (RangeTblEntry *) lfirst(cell);

			if (table->rtekind == RTE_RELATION && table->relid == RelationRelationId)
				table->securityQuals =
					lcons(visible(foreach_current_index(cell) + 1), table->securityQuals);
		}
		return query_tree_walker(query, hide, context, 0);
	}
	return expression_tree_walker(node, hide, context);
}

static PlannedStmt *
plan_without(Query *query, const char *text, int options, ParamListInfo params
#if PG_VERSION_NUM >= 190000
			 ,ExplainState *es
#endif
)
{
	hide((Node *) query, NULL);
#if PG_VERSION_NUM >= 190000
	return next_planner ? next_planner(query, text, options, params, es)
		: standard_planner(query, text, options, params, es);
#else
	return next_planner ? next_planner(query, text, options, params)
		: standard_planner(query, text, options, params);
#endif
}

void
_PG_init(void)
{
	next_planner = planner_hook;
	planner_hook = plan_without;
}
