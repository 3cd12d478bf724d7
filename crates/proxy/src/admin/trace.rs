//! `/trace`.

use std::time::Duration;

use hyper::StatusCode;

use super::query::Query;
use super::reply::Reply;
use crate::control::Control;
use crate::tracing::Refused;

/// Records for a while and answers a Perfetto file; or answers what is held of one trace.
pub(super) async fn trace(control: &Control, query: &Query) -> Reply {
    if let Some(id) = query.first("trace_id") {
        if id.len() != 32 || !id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            let why = "trace_id must be 32 hexadecimal digits in lower case\n";
            return Reply::refused(StatusCode::BAD_REQUEST, why.to_owned());
        }
        return answer(control.tracing.of_trace(id.to_owned()).await);
    }
    let Some(time) = seconds(query.first("seconds")) else {
        let most = LONGEST.as_secs();
        return Reply::refused(
            StatusCode::BAD_REQUEST,
            format!("seconds must be a number above 0 and at most {most}\n"),
        );
    };
    answer(control.tracing.record(time).await)
}

fn answer(file: Result<Vec<u8>, Refused>) -> Reply {
    match file {
        Ok(file) => Reply::file(file),
        Err(Refused::Busy(why)) => Reply::refused(StatusCode::CONFLICT, format!("{why}\n")),
        Err(Refused::Unknown) => {
            Reply::refused(StatusCode::NOT_FOUND, "nothing is held of this trace\n".to_owned())
        }
        Err(Refused::Failed(why)) => {
            Reply::refused(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n"))
        }
    }
}

fn seconds(text: Option<&str>) -> Option<Duration> {
    let Some(text) = text else { return Some(USUAL) };
    let time = Duration::try_from_secs_f64(text.parse().ok()?).ok()?;
    (!time.is_zero() && time <= LONGEST).then_some(time)
}

const USUAL: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_bounded() {
        assert_eq!(seconds(None), Some(USUAL));
        assert_eq!(seconds(Some("60")), Some(LONGEST));
        assert_eq!(seconds(Some("0.25")), Some(Duration::from_millis(250)));
        for text in ["0", "60.001", "-1", "nan", "inf", "1e400", "", "5s", "1e-12"] {
            assert_eq!(seconds(Some(text)), None, "{text}");
        }
    }
}
