//! Replies of DynamoDB that are errors, malformed, late or missing: what is certain is reported as such, and what can be retried
//! is retried within the claim timeout.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use leasehold_fence::conformance::{Subject, fence_id, token};
use leasehold_fence::{Error, dynamodb};

use crate::moto::server;
use crate::proxy::{FaultyProxy, ProxyAction, calls, dynamodb_response};
use crate::scenarios::block_on;
use crate::subject::CloudSubject;
use crate::target::{Target, TargetAddress, append_update};

/// A wait of this length means that the fence never returns.
const NEVER: Duration = Duration::from_secs(60);

/// A fence behind a proxy, with the table of its data.
struct Faulty {
    subject: CloudSubject,
    fence: dynamodb::Fence,
    data: String,
}

impl Faulty {
    /// Opens an armed fence, then starts to apply `decide`.
    fn start(decide: impl FnMut(&str) -> ProxyAction + Send + 'static) -> Self {
        let subject = CloudSubject::new("dynamodb");
        block_on(subject.fresh());
        let started = Arc::new(Mutex::new(None));
        let shared = started.clone();
        let proxy = FaultyProxy::start(server().address, move |head| {
            shared
                .lock()
                .expect("not poisoned")
                .as_mut()
                .map_or(ProxyAction::Forward, |decide: &mut Decide| decide(head))
        });
        let address = TargetAddress { url: proxy.url(), ..subject.address() };
        let Target::Dynamo(fence, data) = block_on(address.open()) else { unreachable!("the subject is DynamoDB") };
        *started.lock().expect("not poisoned") = Some(Box::new(decide) as Decide);
        Self { subject, fence, data }
    }

    fn with_timeout(mut self, timeout: Duration) -> Self {
        self.fence = self.fence.with_claim_timeout(timeout);
        self
    }

    fn write(&self, number: u64, value: &str) -> Result<(), Error> {
        let items = [append_update(&self.data, &format!("{number} {value}"))];
        block_on(async { tokio::time::timeout(NEVER, self.fence.write(&token(number), items)).await })
            .expect("it returns")
            .map(|_| ())
    }

    fn claim(&self, number: u64) -> Result<(), Error> {
        block_on(async { tokio::time::timeout(NEVER, self.fence.claim(&token(number))).await })
            .expect("it returns")
            .map(|_| ())
    }

    fn log(&self) -> Vec<(u64, String)> {
        block_on(self.subject.log())
    }
}

type Decide = Box<dyn FnMut(&str) -> ProxyAction + Send>;

/// A canceled transaction with these reasons, one for each item.
fn canceled(codes: [&str; 2]) -> Vec<u8> {
    let reasons = codes.map(|code| format!(r#"{{"Code":"{code}","Message":"m"}}"#)).join(",");
    dynamodb_response(
        400,
        &format!(
            r#"{{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","Message":"canceled","CancellationReasons":[{reasons}]}}"#
        ),
    )
}

fn failure(status: u16, code: &str, message: &str) -> Vec<u8> {
    let body = format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"{message}"}}"#);
    dynamodb_response(status, &body)
}

/// Responds to the first requests of an operation with these responses, and forwards the others.
fn first(operation: &'static str, responses: Vec<Vec<u8>>) -> impl FnMut(&str) -> ProxyAction + Send + 'static {
    let mut responses = responses.into_iter();
    move |head| match calls(head, operation).then(|| responses.next()).flatten() {
        Some(response) => ProxyAction::Respond(response),
        None => ProxyAction::Forward,
    }
}

pub fn throttled() {
    let responses = vec![
        canceled(["None", "ThrottlingError"]),
        canceled(["ProvisionedThroughputExceeded", "None"]),
        canceled(["TransactionConflict", "None"]),
        failure(400, "ThrottlingException", "slower"),
        failure(400, "ProvisionedThroughputExceededException", "slower"),
        failure(400, "RequestLimitExceeded", "slower"),
    ];
    let faulty = Faulty::start(first("TransactWriteItems", responses));
    faulty.write(33, "once").expect("retried until it was applied");
    assert_eq!(faulty.log(), [(33, "once".to_owned())]);

    let faulty = Faulty::start(first("UpdateItem", vec![failure(400, "ThrottlingException", "slower")]));
    faulty.claim(34).expect("retried until it was applied");
}

pub fn throttled_for_long() {
    let faulty = Faulty::start(|head| match calls(head, "TransactWriteItems") {
        true => ProxyAction::Respond(canceled(["ThrottlingError", "None"])),
        false => ProxyAction::Forward,
    });
    let faulty = faulty.with_timeout(Duration::from_millis(200));
    let error = faulty.write(33, "never").expect_err("throttled for the whole timeout");
    assert_eq!(error.code(), "UNAVAILABLE", "{error}");
    assert!(error.to_string().contains("capacity"), "{error}");
}

pub fn server_errors() {
    for (status, body) in [
        (500, r#"{"__type":"com.amazon.coral.service#InternalFailure"}"#),
        (500, r#"{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"m"}"#),
        (503, r#"{"__type":"com.amazon.coral.availability#ServiceUnavailableException","message":"m"}"#),
        (502, "<html>Bad Gateway</html>"),
        (408, r#"{"__type":"RequestTimeout"}"#),
        (200, r#"{"Truncat"#),
        (200, "<html>Sign in to this network</html>"),
        (307, ""),
    ] {
        // The write was applied, although the response is an error.
        let mut left = 1;
        let faulty = Faulty::start(move |head| {
            if calls(head, "TransactWriteItems") && left > 0 {
                left -= 1;
                return ProxyAction::ReplaceResponse(dynamodb_response(status, body));
            }
            ProxyAction::Forward
        });
        faulty.write(33, "once").unwrap_or_else(|error| panic!("{status} {body}: {error}"));
        assert_eq!(faulty.log(), [(33, "once".to_owned())], "{status} {body}");
    }
}

pub fn reads_fail() {
    let gets = Arc::new(AtomicUsize::new(0));
    let count = gets.clone();
    let mut lost = false;
    let faulty = Faulty::start(move |head| {
        if calls(head, "TransactWriteItems") && !lost {
            lost = true;
            return ProxyAction::LoseResponse(Box::new(|| {}));
        }
        if calls(head, "GetItem") && count.fetch_add(1, Ordering::SeqCst) < 3 {
            return ProxyAction::Respond(dynamodb_response(503, ""));
        }
        ProxyAction::Forward
    });
    faulty.write(33, "once").expect("the mark is read again until the outcome is known");
    assert_eq!(faulty.log(), [(33, "once".to_owned())]);
    assert!(gets.load(Ordering::SeqCst) > 3);
}

pub fn unknown_until_timeout() {
    // The first request was applied, its response is lost, and its own transaction is reported as in progress.
    let (mut sent, subject) = (0, Arc::new(Mutex::new(None::<TargetAddress>)));
    let other = subject.clone();
    let faulty = Faulty::start(move |head| {
        if !calls(head, "TransactWriteItems") {
            return ProxyAction::Forward;
        }
        sent += 1;
        if sent > 1 {
            return ProxyAction::Respond(failure(400, "TransactionInProgressException", "in progress"));
        }
        let address = other.lock().expect("not poisoned").clone().expect("set below");
        ProxyAction::LoseResponse(Box::new(move || {
            // Replaces the nonce, by which the writer would recognize its write.
            block_on(block_on(address.open()).claim(&token(33))).expect("a claim of the same holder");
        }))
    });
    *subject.lock().expect("not poisoned") = Some(faulty.subject.address());
    let faulty = faulty.with_timeout(Duration::from_millis(300));
    let error = faulty.write(33, "once").expect_err("its outcome is unknown");
    assert_eq!(error.code(), "STORAGE_FAILED", "an unknown outcome is not reported as one without effect: {error}");
    assert_eq!(faulty.log(), [(33, "once".to_owned())], "it was applied");
}

pub fn silent_server() {
    for operation in ["UpdateItem", "DescribeTable", "GetItem"] {
        let faulty = Faulty::start(move |head| {
            if calls(head, operation) {
                return ProxyAction::Hang;
            }
            // So that the claim reads the mark.
            if operation == "GetItem" && calls(head, "UpdateItem") {
                return ProxyAction::LoseResponse(Box::new(|| {}));
            }
            ProxyAction::Forward
        });
        let error = faulty.with_timeout(Duration::from_millis(300)).claim(33).expect_err("no reply");
        assert_eq!(error.code(), "STORAGE_FAILED", "{operation}: {error}");
        // If only reading the mark fails, the error is that of the claim.
        assert!(operation == "GetItem" || error.to_string().contains("did not reply"), "{operation}: {error}");
    }
    let faulty =
        Faulty::start(|head| if calls(head, "TransactWriteItems") { ProxyAction::Hang } else { ProxyAction::Forward });
    let error = faulty.with_timeout(Duration::from_millis(300)).write(33, "x").expect_err("no reply");
    assert_eq!(error.code(), "STORAGE_FAILED", "{error}");
}

pub fn rejections() {
    for (code, expected, hint) in [
        ("AccessDeniedException", "PERMISSION_DENIED", "policy"),
        ("UnrecognizedClientException", "UNAUTHENTICATED", "credentials"),
        ("ExpiredTokenException", "UNAUTHENTICATED", "credentials"),
        ("InvalidSignatureException", "UNAUTHENTICATED", "clock"),
        ("ResourceNotFoundException", "NOT_FOUND", "region"),
        ("ValidationException", "INVALID_ARGUMENT", "the words of DynamoDB"),
        ("ItemCollectionSizeLimitExceededException", "STORAGE_FAILED", "the words of DynamoDB"),
    ] {
        for operation in ["TransactWriteItems", "UpdateItem", "DescribeTable"] {
            let response = failure(400, code, "the words of DynamoDB");
            let faulty = Faulty::start(first(operation, vec![response]));
            let result = if operation == "TransactWriteItems" { faulty.write(33, "x") } else { faulty.claim(33) };
            let error = result.expect_err(code);
            assert_eq!(error.code(), expected, "{operation} {code}: {error}");
            let text = error.to_string();
            assert!(text.contains(hint) && text.contains(code), "{operation} {code}: {text}");
            assert!(!text.contains("if the write was applied") || expected == "STORAGE_FAILED", "{operation}: {text}");
        }
    }
}

pub fn own_conditions() {
    let faulty = Faulty::start(|_| ProxyAction::Forward);
    let id = AttributeValue::S("missing".to_owned());
    let put = Put::builder().table_name(&faulty.data).item("id", id).condition_expression("attribute_exists(id)");
    let item = TransactWriteItem::builder().put(put.build().expect("whole")).build();
    let error = block_on(faulty.fence.write(&token(33), [item])).expect_err("its condition is not met");
    assert_eq!(error.code(), "STORAGE_FAILED", "{error}");
    assert!(error.to_string().contains("TransactionCanceled"), "the text names the cause: {error}");
    let Error::Storage(inner) = &error else { panic!("{error:?}") };
    let inner = inner.downcast_ref::<SdkError<TransactWriteItemsError>>().expect("the error of DynamoDB");
    let Some(TransactWriteItemsError::TransactionCanceledException(canceled)) = inner.as_service_error() else {
        panic!("{inner:?}");
    };
    assert_eq!(canceled.cancellation_reasons()[1].code(), Some("ConditionalCheckFailed"));
    assert_eq!(block_on(faulty.fence.mark()).expect("readable"), None, "the mark was not raised");
}

pub fn operators() {
    // The first put of arm and of each operator is applied, and its response is lost.
    let subject = CloudSubject::new("dynamodb");
    block_on(subject.unarmed());
    let lose = Arc::new(AtomicUsize::new(0));
    let left = lose.clone();
    let proxy = FaultyProxy::start(server().address, move |head| {
        let is_left = |left: usize| left.checked_sub(1);
        if calls(head, "PutItem") && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_left).is_ok() {
            return ProxyAction::LoseResponse(Box::new(|| {}));
        }
        ProxyAction::Forward
    });
    let address = TargetAddress { url: proxy.url(), ..subject.address() };
    let fence = block_on(dynamodb::Fence::open(address.client(), &address.name, &fence_id())).expect("opened");
    lose.store(1, Ordering::SeqCst);
    block_on(fence.arm()).expect("armed, and recognized");
    assert_eq!(block_on(fence.arm()).expect_err("armed before").code(), "CONFLICT");
    lose.store(1, Ordering::SeqCst);
    block_on(fence.strict(true)).expect("changed, and recognized");
    lose.store(1, Ordering::SeqCst);
    block_on(fence.rearm(leasehold_fence::conformance::number(40))).expect("re-armed, and recognized");
    assert_eq!(block_on(fence.mark()).expect("readable").map(|mark| mark.get()), Some(40));
}
