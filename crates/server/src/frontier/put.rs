//! Adds pages.

use politely_api::wire::{FrontierPage, PutAnswer, PutResult};
use politely_frontier::{Answer, CrawlName, FrontierError, NewPage, Priority};

use super::{FrontierService, date};

impl FrontierService {
    /// Adds pages, and returns one answer for each. The pages are on disk then.
    pub(crate) async fn put(
        &self,
        crawl: CrawlName,
        pages: Vec<NewPage>,
    ) -> Result<Vec<Answer>, FrontierError> {
        self.call(move |service| {
            let answers = service.lock().put(&crawl, pages, service.now())?;
            service.sync()?;
            service.0.changed.notify_waiters();
            Ok(answers)
        })
        .await
    }
}

/// Returns the page of a call.
///
/// # Errors
/// A date or a priority that is out of range is an error in words.
pub(crate) fn new_page(page: FrontierPage) -> Result<NewPage, String> {
    let FrontierPage {
        url,
        key,
        priority,
        due_unix_ms,
        metadata,
        finished,
    } = page;
    let wrong = || format!("the priority {priority} is not from 0 to 9");
    Ok(NewPage {
        url,
        key,
        priority: Priority::new(priority).ok_or_else(wrong)?,
        due: due_unix_ms.map(date).transpose()?,
        metadata: metadata.map_or_else(Vec::new, |json| json.to_string().into_bytes()),
        is_finished: finished,
    })
}

/// Returns the answer to a page in the form of the wire.
pub(crate) fn put_answer(answer: Answer) -> PutAnswer {
    let (answer, detail) = match answer {
        Answer::New => (PutResult::New, None),
        Answer::Known => (PutResult::Known, None),
        Answer::Full => (PutResult::Full, None),
        Answer::Invalid(why) => (PutResult::Invalid, Some(why.to_string())),
    };
    PutAnswer { answer, detail }
}
