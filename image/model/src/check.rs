//! How a model is checked.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

/// Looks at every state, unless a wrong answer is found before. Returns which one, and the steps.
pub fn check<M>(model: M, until: HasDiscoveries) -> Option<(&'static str, Vec<M::Action>)>
where
    M: Model + Debug + Send + Sync + 'static,
    M::State: Hash + Send + Sync + Debug + Clone + PartialEq,
    M::Action: Send + Sync + Debug + Clone + PartialEq,
{
    let begun = Instant::now();
    let name = format!("{model:?}");
    let checker = model.checker().finish_when(until).spawn_bfs().join();
    println!(
        "{name}: {} states, at most {} steps, {:.1?}",
        checker.unique_state_count(),
        checker.max_depth(),
        begun.elapsed()
    );
    let found = checker.discoveries().into_iter().next()?;
    Some((found.0, found.1.into_actions()))
}
