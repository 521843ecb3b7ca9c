//! A booking that changes its owners.

use plimsoll_residency::{Book, InferenceSpec, ProcessId, Request, Terms, Timestamp};
use plimsoll_units::{Bytes, PoolId};

fn process(pid: u32) -> ProcessId {
    ProcessId { boot: "b".to_owned(), namespace: 1, pid, start: 7 }
}

#[test]
fn what_is_handed_over_belongs_to_its_new_owners_alone() {
    let pool = PoolId::new("a").unwrap();
    let mut book = Book::new([(pool.clone(), Some(Bytes::new(100)))]);
    let spec = InferenceSpec::new("r", "x").with_memory(Bytes::new(60), Bytes::ZERO);
    let terms = Terms { owners: vec![process(1)], ..Terms::default() };
    book.reserve(&Request::new("r", spec).on(terms), Timestamp::ZERO).unwrap();
    assert!(book.hand_over("r", &[process(2)]));
    assert_eq!(book.get("r").unwrap().terms().owners, [process(2)]);
    assert!(book.hand_over("r", &[]));
    assert!(book.get("r").unwrap().is_unowned());
    assert_eq!(book.pool(pool.as_str()).unwrap().used, Bytes::new(60));
    assert!(!book.hand_over("nobody", &[]));
}
