//! Lists whose places are numbers that others keep: a place that is free is used again.

/// Puts something into the first free place; answers which that is.
pub(crate) fn put<T>(list: &mut Vec<Option<T>>, fresh: T) -> usize {
    let place = list.iter().position(Option::is_none).unwrap_or(list.len());
    if place == list.len() {
        list.push(Some(fresh));
    } else {
        list[place] = Some(fresh);
    }
    place
}
