//! Pauses the run while this machine itself is at fault, see `core/src/fault/machine.rs`.

use std::sync::atomic::Ordering;

use politely::core::fault::machine::PROBE_EVERY;

use super::engine::Engine;
use super::lanes::{LaneId, Pause};
use super::transport::answer::Came;

/// Returns whether a failure is this machine's, and says that requests pause. An answer ends such a
/// pause.
pub(super) fn is_at_fault(engine: &Engine, lane: LaneId, came: &Came) -> bool {
    let lost = match came {
        Came::Answer(_) => {
            if !engine.suspects_machine.load(Ordering::Relaxed) {
                return false;
            }
            engine.suspects_machine.store(false, Ordering::Relaxed);
            let paused = engine.lock().lanes.machine_works(engine.limits.now());
            if let Some(paused) = paused {
                let secs = paused.as_secs();
                engine.talk.say(&format!(
                    "a host answers again after {secs} s: the run goes on"
                ));
                engine.look_again();
            }
            return false;
        }
        Came::Failed(lost) => lost,
    };
    let Some(trouble) = lost.trouble else {
        return false;
    };
    engine.suspects_machine.store(true, Ordering::Relaxed);
    let pause = {
        let mut shared = engine.lock();
        shared
            .lanes
            .machine_failed(lane, trouble, engine.limits.now())
    };
    if pause == Some(Pause::Begins) {
        engine.talk.say(&format!(
            "this machine seems to be at fault, and no host ({}): the run pauses, and tries again every {} s",
            lost.words,
            PROBE_EVERY.as_secs()
        ));
    }
    pause.is_some()
}
