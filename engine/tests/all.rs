//! What tests from outside ask of the engine: one program, since each has most of the engine
//! compiled into it. Those that count what a whole process allocates, or fork it, are programs of
//! their own.

mod common;

mod basic;
mod build;
mod churn;
mod concurrent;
mod cuts;
mod held;
mod long;
mod lookup;
mod misuse;
mod model;
mod new_keys;
mod old_term;
mod orders;
mod part;
mod passes;
mod pause;
mod phases;
mod rest;
mod reverse;
mod scroll;
mod shared;
mod shrink;
mod storm;
mod sweep;
mod tight;
mod unwind;
mod walks;
