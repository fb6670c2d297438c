//! A request leaves: through which egress, and through which others while egresses fail.

use std::time::{Duration, Instant};

use politely::core::signal::Failure;

use super::engine::Engine;
use super::lanes::pending::{Pending, Through};
use super::limits::Leave;
use super::transport::answer::{Came, Lost};
use super::transport::call::Call;
use super::transport::egresses::{NoEgress, WayFailed};

/// Records that a request of `pending` leaves, and sends it. Returns its result, and how long it
/// took.
///
/// # Errors
/// The request did not leave: it could not be recorded, or no egress works that it may take.
pub(super) async fn depart(
    engine: &Engine,
    leave: &mut Leave,
    pending: &mut Pending,
    call: Call<'_>,
) -> Result<(Came, Duration), NoEgress> {
    let now = engine.limits.now();
    let egress = engine
        .egresses
        .choose(now, pending, call.url, leave.egress)?;
    took(pending, egress);
    if !engine.write_sent(leave) || !engine.write_once(pending) {
        return Err(NoEgress::Before(now));
    }
    leave.sent();
    let began = Instant::now();
    let came = leave.during(fetch(engine, pending, egress, call)).await?;
    Ok((came, began.elapsed()))
}

/// Sends a request through `egress`, and through others while egresses fail.
///
/// An answer that broke at a proxy which forwards may be the proxy's fault or the host's. Another
/// proxy decides: if an answer comes through it, the first one failed.
///
/// # Errors
/// No egress is left, though one worked before.
async fn fetch(
    engine: &Engine,
    pending: &mut Pending,
    mut egress: usize,
    call: Call<'_>,
) -> Result<Came, NoEgress> {
    let mut doubted: Option<(usize, WayFailed)> = None;
    loop {
        let ended = engine.clients.call(egress, engine.hosts(), call).await;
        let why = match ended {
            Ok(Came::Failed(mut lost)) if lost.failure == Failure::Connect => {
                // The proxy works, and it cannot reach the host.
                engine.egresses.worked(egress, call.url);
                lost.words.insert_str(0, &engine.egresses.through(egress));
                return Ok(Came::Failed(lost));
            }
            Ok(Came::Answer(answer)) => {
                engine.egresses.worked(egress, call.url);
                if let Some((first, why)) = doubted {
                    (engine.egresses).failed(engine.limits.now(), first, &why, true, &engine.talk);
                    engine.egresses.keep(call.url, egress);
                }
                return Ok(Came::Answer(answer));
            }
            Ok(Came::Failed(lost)) => {
                use Failure::{CutOff, Malformed, Reset};
                let broke = matches!(lost.failure, Reset | CutOff | Malformed);
                let is_once = call.is_once || !call.may_repeat;
                if !broke || doubted.is_some() || is_once || pending.through.is_only() {
                    return Ok(Came::Failed(lost));
                }
                let now = engine.limits.now();
                let Some(next) = engine.egresses.instead_of(now, egress, call.url) else {
                    return Ok(Came::Failed(lost));
                };
                doubted = Some((egress, WayFailed::whole(lost.words)));
                egress = next;
                took(pending, egress);
                continue;
            }
            Err(why) => why,
        };
        let now = engine.limits.now();
        let is_bound = pending.through.is_only();
        if why.may_be_host && engine.egresses.refused(egress, call.url) {
            return Ok(unconnected(engine, egress, &why));
        }
        if let Some(next) = (engine.egresses).failed(now, egress, &why, is_bound, &engine.talk) {
            egress = next;
            took(pending, egress);
            engine.egresses.keep(call.url, egress);
        } else if let Some(next_try) = engine.egresses.next_try(now) {
            return Err(NoEgress::Before(next_try));
        } else {
            if engine.egresses.is_fixed() && !is_bound {
                pending.through = Through::None;
                engine.egresses.leave(call.url, egress);
            }
            return Ok(unconnected(engine, egress, &why));
        }
    }
}

/// Returns the result of a request that found no way to its host through `egress`.
fn unconnected(engine: &Engine, egress: usize, why: &WayFailed) -> Came {
    Came::Failed(Lost {
        failure: Failure::Connect,
        words: format!("{}{why}", engine.egresses.through(egress)),
        trouble: None,
        is_http2: false,
    })
}

/// Records the egress of a request.
fn took(pending: &mut Pending, egress: usize) {
    if !pending.through.is_only() {
        pending.through = Through::Last(egress);
    }
}
