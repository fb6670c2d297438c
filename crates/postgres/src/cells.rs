//! Reads and changes of cells.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use politely_store::{EngineError, Write, Written};
use tokio_postgres::types::ToSql;

use crate::connection::Session;
use crate::{Result, Value};

/// Characters that are percent-encoded in the name of a row. `PostgreSQL` stores no NUL.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

pub(crate) const READ: &str = "
SELECT name, value FROM politely_cells WHERE name = ANY($1)";

/// Changes all cells of a batch that may be changed, and returns their names.
///
/// If a row is locked, `FOR UPDATE` waits and then looks at the version again. Rows are locked and
/// inserted in the order of their names.
pub(crate) const CHANGE: &str = "
WITH given AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::float8[], $5::bool[])
        AS given(name, expected, value, keep_s, notify)
), known AS MATERIALIZED (
    SELECT cell.name FROM politely_cells cell JOIN given ON cell.name = given.name
    WHERE substring(cell.value FOR 16) = given.expected
    ORDER BY cell.name FOR UPDATE OF cell
), changed AS (
    UPDATE politely_cells cell
    SET value = given.value, expires = clock_timestamp() + given.keep_s * interval '1 second'
    FROM given WHERE cell.name = given.name AND cell.name IN (SELECT name FROM known)
    RETURNING cell.name
), created AS (
    INSERT INTO politely_cells (name, value, expires)
    SELECT name, value, clock_timestamp() + keep_s * interval '1 second'
    FROM given WHERE expected IS NULL ORDER BY name
    ON CONFLICT (name) DO NOTHING
    RETURNING name
), done AS (
    SELECT name FROM changed UNION ALL SELECT name FROM created
)
SELECT done.name, CASE WHEN given.notify THEN pg_notify($6, done.name) END
FROM done JOIN given ON done.name = given.name";

/// Returns the name of a cell's row.
fn row_name(cell: &str) -> String {
    utf8_percent_encode(cell, ENCODED).to_string()
}

/// Returns the cell of a row.
pub(crate) fn cell_of(row_name: &str) -> Arc<str> {
    percent_decode_str(row_name).decode_utf8_lossy().into()
}

impl Session {
    /// Returns the values of `cells`, in order.
    pub(crate) async fn read(&self, cells: &[Arc<str>]) -> Result<Vec<Value>> {
        let names: Vec<String> = cells.iter().map(|cell| row_name(cell)).collect();
        let rows = self.client.query(&self.read, &[&names]).await;
        let rows = rows.map_err(|why| self.place.refused(&why))?;
        let mut found: HashMap<String, Vec<u8>> =
            rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        Ok(names.iter().map(|name| found.remove(name)).collect())
    }

    /// Changes cells.
    pub(crate) async fn change(&self, writes: &[Write]) -> Vec<Result<Written>> {
        let error = match self.change_together(writes).await {
            Ok(written) => return written.into_iter().map(Ok).collect(),
            Err(error) => error,
        };
        // One write that the server refuses must not fail the others.
        if writes.len() < 2 || self.client.is_closed() {
            return vec![Err(error); writes.len()];
        }
        let mut results = Vec::with_capacity(writes.len());
        for write in writes {
            let one = self.change_together(std::slice::from_ref(write)).await;
            results.push(one.map(|mut written| written.remove(0)));
        }
        results
    }

    async fn change_together(&self, writes: &[Write]) -> Result<Vec<Written>> {
        let names: Vec<String> = writes.iter().map(|it| row_name(&it.cell)).collect();
        let expected: Vec<Option<&[u8]>> = writes.iter().map(expected).collect();
        let values: Vec<&[u8]> = writes.iter().map(|it| &*it.value).collect();
        let keep: Vec<f64> = writes.iter().map(|it| it.keep.as_secs_f64()).collect();
        let notify: Vec<bool> = writes.iter().map(|it| it.notify).collect();
        let given: [&(dyn ToSql + Sync); 6] =
            [&names, &expected, &values, &keep, &notify, &self.channel];
        let rows = self.client.query(&self.change, &given).await;
        let rows = rows.map_err(|why| self.place.refused(&why))?;
        let done: HashSet<&str> = rows.iter().map(|row| row.get(0)).collect();
        let refused = writes.iter().zip(&names);
        let refused = refused.filter(|(_, name)| !done.contains(name.as_str()));
        let refused: Vec<Arc<str>> = refused.map(|(it, _)| Arc::clone(&it.cell)).collect();
        let mut found = match &refused[..] {
            [] => Vec::new(),
            refused => self.read(refused).await?,
        }
        .into_iter();
        let written = names.iter().map(|name| {
            if done.contains(name.as_str()) {
                Written::Done
            } else {
                Written::Conflict(found.next().flatten())
            }
        });
        Ok(written.collect())
    }

    /// Returns the server's time in microseconds since 1970.
    pub(crate) async fn time_us(&self) -> Result<u64> {
        let row = self.client.query_one(&self.time, &[]).await;
        let row = row.map_err(|why| self.place.refused(&why))?;
        Ok(u64::try_from(row.get::<_, i64>(0)).unwrap_or_default())
    }

    /// Returns the names of the settings that are off and guard commits against a power failure.
    pub(crate) async fn settings_that_are_off(&self) -> Result<Vec<String>> {
        const SETTINGS: &str = "SELECT name FROM pg_settings
            WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name";
        let rows = self.client.query(SETTINGS, &[]).await;
        let rows = rows.map_err(|why| self.place.refused(&why))?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}

fn expected(write: &Write) -> Option<&[u8]> {
    write.expected.as_ref().map(|version| &version.0[..])
}

impl crate::url::Place {
    /// Returns the error of a request: the server's own words in one line.
    pub(crate) fn refused(&self, why: &tokio_postgres::Error) -> EngineError {
        let mut text = match why.as_db_error() {
            Some(db) => db.message().to_owned(),
            // Its words alone omit the cause.
            None => {
                std::error::Error::source(why).map_or(why.to_string(), |it| format!("{why}: {it}"))
            }
        };
        if text.contains("no encryption") {
            text += "; add sslmode=require to the URL";
        }
        self.error(&text.replace('\n', " "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn every_name_has_a_row_of_its_own(cell in ".{0,20}", other in ".{0,20}") {
            let name = row_name(&cell);
            assert!(!name.contains('\0'));
            assert_eq!(&*cell_of(&name), cell);
            assert_eq!(name == row_name(&other), cell == other);
        }
    }
}
