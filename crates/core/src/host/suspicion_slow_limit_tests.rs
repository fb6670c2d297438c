use super::*;

/// A bucket of the server's: it refuses by 403, and a cache may serve the pages that it served.
struct Bucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    at: Timestamp,
    is_cached: bool,
}

impl Bucket {
    /// Returns what the answer to a request at `now` shares with others.
    fn refuses(&mut self, now: Timestamp, can_check: bool) -> Option<u32> {
        let added = now.since(self.at).as_secs_f64() * self.rate;
        (self.tokens, self.at) = (self.burst.min(self.tokens + added), now);
        if can_check && self.is_cached {
            return None;
        }
        let has_token = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(has_token));
        (!has_token).then_some(403)
    }
}

proptest! {
    /// Pages that a limit refused are not taken for bad ones, however slow it is, whenever it is
    /// met, and whoever serves the pages that are asked for again.
    #[test]
    fn a_slow_limit_is_learned_and_no_refused_page_is_ordinary(
        (rate, burst) in (0.1_f64..2.0, 1_u32..20),
        is_cached in any::<bool>(),
        phase in 0_u64..10_000,
    ) {
        let mut site = Site::new();
        site.now = site.now + Duration::from_millis(phase);
        let burst = f64::from(burst);
        let mut bucket = Bucket { rate, burst, tokens: burst, at: site.now, is_cached };
        let (mut served, mut refused) = (Vec::new(), Vec::<String>::new());
        let mut doubt = Doubt::None;
        for page in 0..400 {
            // As `fetch` does: a proof while the host is suspected, then a refused page.
            let (url, can_check) = match (doubt, served.first()) {
                (Doubt::Suspected, Some(first)) => (String::clone(first), true),
                (Doubt::Checking, _) if !refused.is_empty() => (refused.remove(0), false),
                _ => (format!("page/{page}"), false),
            };
            let grant = site.granted();
            let alike = bucket.refuses(site.now, can_check);
            doubt = site.told(grant, &*url, answer(alike, can_check)).doubt;
            if doubt == Doubt::Limited {
                return Ok(());
            }
            prop_assert!(alike.is_none() || doubt != Doubt::None || served.is_empty(), "{page}");
            match alike {
                None => served.push(url),
                Some(_) if !can_check => refused.push(url),
                Some(_) => {}
            }
        }
        prop_assert!(refused.is_empty(), "it is not learned");
    }
}
