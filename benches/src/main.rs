//! x
mod queue;

fn main() {
    queue::run();
}
