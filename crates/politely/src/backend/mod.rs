//! The backends that a limiter's permits come from.
//!
//! | room | the keys are in | a permit is granted by |
//! | --- | --- | --- |
//! | `local/` | this process | `Local::try_part` |
//! | [`coordinator`] | a coordinator, which workers call over HTTP | the coordinator |
//! | [`store`] | an engine, such as Redis, which processes share | `Node`, in `politely-store` |
//!
//! All of them implement [`Operations`]. The [`Limiter`](crate::Limiter) calls them through it,
//! except for the most frequent call: [`Local::pass`].

#[cfg(feature = "coordinator")]
pub mod coordinator;
pub(crate) mod local;
pub(crate) mod operations;
mod prefetch;
pub mod store;

#[cfg(feature = "coordinator")]
use self::coordinator::Coordinator;
use self::local::Local;
use self::operations::Operations;
use self::store::Store;

/// The backend that a limiter's permits come from.
pub(crate) enum Backend {
    Local(Local),
    #[cfg(feature = "coordinator")]
    Coordinator(Coordinator),
    Store(Store),
}

impl Backend {
    pub(crate) fn operations(&self) -> &dyn Operations {
        match self {
            Self::Local(local) => local,
            #[cfg(feature = "coordinator")]
            Self::Coordinator(coordinator) => coordinator,
            Self::Store(store) => store,
        }
    }
}
