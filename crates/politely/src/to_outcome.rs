//! Outcomes of the types that HTTP clients return.

use politely_core::signal::{Outcome, Resource, classify};

use crate::permit::Permit;
use crate::slot::Slot;

/// A type that says what happened to a request, for [`Permit::report_response`].
///
/// It is implemented for [`http::Response`]. With the feature `reqwest` it is implemented for
/// `reqwest::Response`. With the feature `tower` or `reqwest` it is implemented for a `Result` of
/// them, whose error becomes the failure that [`failure_of`](crate::attempts::failure_of) finds.
pub trait ToOutcome {
    /// Returns the response without its body, or the failure.
    fn outcome(&self) -> Outcome<'_>;

    /// Returns the requested URL if the response names it. With it, one bad URL slows no other.
    fn resource(&self) -> Option<Resource> {
        None
    }
}

impl<B> ToOutcome for http::Response<B> {
    fn outcome(&self) -> Outcome<'_> {
        Outcome::Answered {
            status: self.status(),
            headers: self.headers(),
            body_start: &[],
        }
    }
}

#[cfg(feature = "reqwest")]
impl ToOutcome for reqwest::Response {
    fn outcome(&self) -> Outcome<'_> {
        Outcome::Answered {
            status: self.status(),
            headers: self.headers(),
            body_start: &[],
        }
    }

    fn resource(&self) -> Option<Resource> {
        Some(Resource::of(self.url().as_str()))
    }
}

#[cfg(any(feature = "tower", feature = "reqwest"))]
impl<R: ToOutcome, E: std::error::Error + 'static> ToOutcome for Result<R, E> {
    fn outcome(&self) -> Outcome<'_> {
        use politely_core::signal::Failure;
        match self {
            Ok(response) => response.outcome(),
            // An error without a failure of the host is about this request alone.
            Err(error) => {
                Outcome::Failed(crate::attempts::failure_of(error).unwrap_or(Failure::Malformed))
            }
        }
    }

    fn resource(&self) -> Option<Resource> {
        self.as_ref().ok()?.resource()
    }
}

impl Permit {
    /// Reports the response of any HTTP client, or its error, as soon as the head is there.
    ///
    /// This classifies the status and the headers ([`classify`]) and reports them with
    /// [`Permit::report_head`]. The latency is the time since [`Permit::start`], so send the
    /// request as soon as the permit is there. Keep the slot until the body has arrived: the server
    /// counts the request until then.
    ///
    /// ```no_run
    /// # #[cfg(feature = "reqwest")]
    /// # async fn example(limiter: politely::Limiter, client: reqwest::Client, url: &str) -> Result<(), Box<dyn std::error::Error>> {
    /// let permit = limiter.acquire(&politely::Key::host(url)?).await?;
    /// let response = client.get(url).send().await;
    /// let slot = permit.report_response(&response);
    /// let page = response?.text().await?;
    /// drop(slot);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Never: a permit has at least one key.
    pub fn report_response(self, response: &impl ToOutcome) -> Slot {
        let clock = crate::clock::wall_clock();
        let mut report = classify(&response.outcome(), clock, self.age(), 0);
        report.resource = response.resource();
        self.report_head(&report).1
    }
}
