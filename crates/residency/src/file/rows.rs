//! Bookings and waits as rows.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_units::{Bytes, PoolId};
use rusqlite::{Connection, Row, named_params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::File;
use crate::book::{Book, Booking, Measured, Share, Touched, Waiter};
use crate::{Request, StoreError, Terms, Timestamp};

/// A share as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenShare {
    pool: PoolId,
    booked: Bytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    measured: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    measured_before: Option<Bytes>,
}

/// Reads the whole book.
pub(super) fn read(connection: &Connection, file: &File) -> Result<Book, StoreError> {
    let told = |source| file.error(source);
    let mut book = Book::default();
    let mut statement =
        connection.prepare_cached("SELECT id, budget FROM pools ORDER BY id").map_err(told)?;
    let mut rows = statement.query([]).map_err(told)?;
    while let Some(row) = rows.next().map_err(told)? {
        let id: String = row.get(0).map_err(told)?;
        let budget: Option<i64> = row.get(1).map_err(told)?;
        let id = PoolId::new(&id).map_err(|error| file.corrupt(error.to_string()))?;
        book.set_budget(&id, budget.map(bytes));
    }
    let next: i64 = connection
        .prepare_cached("SELECT value FROM counters WHERE name = 'next_ticket'")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
        .map_err(told)?;
    book.start_tickets_at(next.cast_unsigned());
    let mut statement =
        connection.prepare_cached("SELECT * FROM bookings ORDER BY instance").map_err(told)?;
    let mut rows = statement.query([]).map_err(told)?;
    while let Some(row) = rows.next().map_err(told)? {
        let booking = booking(row, file, &book)?;
        book.put(Box::new(booking));
    }
    let mut statement = connection.prepare_cached("SELECT * FROM waiters ORDER BY ticket").map_err(told)?;
    let mut rows = statement.query([]).map_err(told)?;
    while let Some(row) = rows.next().map_err(told)? {
        let waiter = waiter(row, file, &book)?;
        book.insert_waiter(waiter);
    }
    book.keep_track();
    Ok(book)
}

fn booking(row: &Row<'_>, file: &File, book: &Book) -> Result<Booking, StoreError> {
    let request = request(row, file)?;
    let written: Vec<WrittenShare> = json(row, file, "shares", &request.instance)?;
    let share = |written: WrittenShare| {
        let pool = book.place(written.pool.as_str()).ok_or_else(|| {
            file.corrupt(format!("'{}' holds memory of an unknown pool '{}'", request.instance, written.pool))
        })?;
        let measured = Measured { last: written.measured, before: written.measured_before };
        Ok(Share { pool, booked: written.booked, measured })
    };
    let shares = written.into_iter().map(share).collect::<Result<_, StoreError>>()?;
    let boot: Option<String> = get(row, file, "boot")?;
    Ok(Booking {
        instance: request.instance.as_str().into(),
        spec: request.spec,
        shares,
        terms: request.terms,
        since: moment(get(row, file, "since")?),
        lease_until: get::<Option<i64>>(row, file, "lease_until")?.map(moment),
        expires: get::<Option<i64>>(row, file, "expires")?.map(moment),
        boot: boot.map(Arc::from),
        in_use: small(row, file, "in_use")?,
        ticket: get::<Option<i64>>(row, file, "ticket")?.map(i64::cast_unsigned),
    })
}

fn waiter(row: &Row<'_>, file: &File, book: &Book) -> Result<Waiter, StoreError> {
    let request = request(row, file)?;
    let shares = book.shares(&request.spec).map_err(|refusal| file.corrupt(refusal.to_string()))?;
    Ok(Waiter {
        ticket: get::<i64>(row, file, "ticket")?.cast_unsigned(),
        request,
        shares,
        since: moment(get(row, file, "since")?),
        deadline: get::<Option<i64>>(row, file, "deadline")?.map(moment),
        lease_until: get::<Option<i64>>(row, file, "lease_until")?.map(moment),
    })
}

fn request(row: &Row<'_>, file: &File) -> Result<Request, StoreError> {
    let instance: String = get(row, file, "instance")?;
    let terms = Terms {
        owners: json(row, file, "owners", &instance)?,
        lease: get::<Option<i64>>(row, file, "lease_ms")?.map(span),
        ttl: get::<Option<i64>>(row, file, "ttl_ms")?.map(span),
        pinned: get(row, file, "pinned")?,
        priority: small(row, file, "priority")?,
    };
    let spec = json(row, file, "spec", &instance)?;
    Ok(Request { instance, spec, terms })
}

fn get<T: rusqlite::types::FromSql>(row: &Row<'_>, file: &File, column: &str) -> Result<T, StoreError> {
    row.get(column).map_err(|source| file.error(source))
}

fn small(row: &Row<'_>, file: &File, column: &str) -> Result<u32, StoreError> {
    let value: i64 = get(row, file, column)?;
    u32::try_from(value).map_err(|_| file.corrupt(format!("{column} is {value}")))
}

fn json<T: DeserializeOwned>(
    row: &Row<'_>,
    file: &File,
    column: &str,
    instance: &str,
) -> Result<T, StoreError> {
    let text: String = get(row, file, column)?;
    serde_json::from_str(&text).map_err(|error| file.corrupt(format!("{column} of '{instance}': {error}")))
}

/// Writes down what changed.
pub(super) fn write(
    connection: &Connection,
    file: &File,
    book: &Book,
    touched: &Touched,
) -> Result<(), StoreError> {
    let told = |source| file.error(source);
    if touched.pools {
        let mut statement =
            connection.prepare_cached("INSERT OR REPLACE INTO pools VALUES (?1, ?2)").map_err(told)?;
        for pool in book.pools() {
            let budget = pool.budget.map(|budget| budget.get().cast_signed());
            statement.execute((pool.id.as_str(), budget)).map_err(told)?;
        }
    }
    if touched.next_ticket {
        connection
            .prepare_cached("UPDATE counters SET value = ?1 WHERE name = 'next_ticket'")
            .and_then(|mut statement| statement.execute([book.next_ticket_number().cast_signed()]))
            .map_err(told)?;
    }
    for instance in &touched.bookings {
        match book.get(instance) {
            Some(booking) => write_booking(connection, file, book, booking)?,
            None => {
                connection
                    .prepare_cached("DELETE FROM bookings WHERE instance = ?1")
                    .and_then(|mut statement| statement.execute([&**instance]))
                    .map_err(told)?;
            }
        }
    }
    for ticket in &touched.tickets {
        match book.waiter(*ticket) {
            Some(waiter) => write_waiter(connection, file, waiter)?,
            None => {
                connection
                    .prepare_cached("DELETE FROM waiters WHERE ticket = ?1")
                    .and_then(|mut statement| statement.execute([ticket.cast_signed()]))
                    .map_err(told)?;
            }
        }
    }
    Ok(())
}

fn write_booking(
    connection: &Connection,
    file: &File,
    book: &Book,
    booking: &Booking,
) -> Result<(), StoreError> {
    let share = |share: &Share| WrittenShare {
        pool: book.pool_id(share.pool).clone(),
        booked: share.booked,
        measured: share.measured.last,
        measured_before: share.measured.before,
    };
    let shares: Vec<WrittenShare> = booking.shares.iter().map(share).collect();
    let terms = &booking.terms;
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO bookings VALUES (:instance, :spec, :shares, :owners, :pinned, :priority, \
             :lease_ms, :ttl_ms, :since, :lease_until, :expires, :boot, :in_use, :ticket)",
        )
        .and_then(|mut statement| {
            statement.execute(named_params! {
                ":instance": &*booking.instance,
                ":spec": text(&booking.spec),
                ":shares": text(&shares),
                ":owners": text(&terms.owners),
                ":pinned": terms.pinned,
                ":priority": terms.priority,
                ":lease_ms": terms.lease.map(millis),
                ":ttl_ms": terms.ttl.map(millis),
                ":since": signed(booking.since),
                ":lease_until": booking.lease_until.map(signed),
                ":expires": booking.expires.map(signed),
                ":boot": booking.boot.as_deref(),
                ":in_use": booking.in_use,
                ":ticket": booking.ticket.map(u64::cast_signed),
            })
        })
        .map_err(|source| file.error(source))?;
    Ok(())
}

fn write_waiter(connection: &Connection, file: &File, waiter: &Waiter) -> Result<(), StoreError> {
    let terms = &waiter.request.terms;
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO waiters VALUES (:ticket, :instance, :spec, :owners, :pinned, :priority, \
             :lease_ms, :ttl_ms, :since, :lease_until, :deadline)",
        )
        .and_then(|mut statement| {
            statement.execute(named_params! {
                ":ticket": waiter.ticket.cast_signed(),
                ":instance": waiter.request.instance,
                ":spec": text(&waiter.request.spec),
                ":owners": text(&terms.owners),
                ":pinned": terms.pinned,
                ":priority": terms.priority,
                ":lease_ms": terms.lease.map(millis),
                ":ttl_ms": terms.ttl.map(millis),
                ":since": signed(waiter.since),
                ":lease_until": waiter.lease_until.map(signed),
                ":deadline": waiter.deadline.map(signed),
            })
        })
        .map_err(|source| file.error(source))?;
    Ok(())
}

fn text<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("names and numbers can always be written")
}

// SQLite's integers are signed: the upper half of ours is written as negative numbers.
fn bytes(n: i64) -> Bytes {
    Bytes::new(n.cast_unsigned())
}

fn moment(n: i64) -> Timestamp {
    Timestamp::from_millis(n.cast_unsigned())
}

fn signed(moment: Timestamp) -> i64 {
    moment.as_millis().cast_signed()
}

fn span(n: i64) -> Duration {
    Duration::from_millis(n.cast_unsigned())
}

fn millis(span: Duration) -> i64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX).cast_signed()
}
