"""Convert written dates and times of day to seconds since 1970.

There are three forms: with the year, the day or the month first. A time of day may follow, with a fraction of
a second (which is truncated), AM or PM, and a time zone. A time without a zone counts as UTC.
"""

from collections.abc import Mapping
from typing import get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedrec.config.catalogue import DateForm, TimeFormat

_SECONDS_PER_DAY = 86_400
_LATEST_YEAR = 9999
_YEAR, _MONTH, _DAY = "(?P<year>[0-9]{4})", "(?P<month>[0-9]{1,2})", "(?P<day>[0-9]{1,2})"
_ZONE = "(?P<zone>Z|UTC|(?P<sign>[+-])(?P<ahead>[0-9]{2})(?::?(?P<further>[0-9]{2}))?)"
_CLOCK = (
    "(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.][0-9]+)?)?"
    f"(?: ?(?P<half>[AaPp])[Mm])?(?: ?{_ZONE})?"
)
_SPELLING: Mapping[DateForm, str] = {
    "iso": f"^{_YEAR}[-/.]{_MONTH}[-/.]{_DAY}(?:[T ]{_CLOCK})?$",
    "day_first": f"^{_DAY}[-/.]{_MONTH}[-/.]{_YEAR}(?:,? {_CLOCK})?$",
    "month_first": f"^{_MONTH}[-/.]{_DAY}[-/.]{_YEAR}(?:,? {_CLOCK})?$",
}
_PARTS = ("year", "month", "day", "hour", "minute", "second", "ahead", "further")
DATE_FORMS: tuple[DateForm, ...] = get_args(DateForm)
DATE_EXAMPLES: Mapping[DateForm, str] = {
    "iso": "2024-04-18 or 2024-04-18T13:51:56",
    "day_first": "18.04.2024 or 18/04/2024 13:51",
    "month_first": "04/18/2024 or 4/18/2024 1:51 PM",
}


def date_form(form: TimeFormat) -> DateForm | None:
    """The form of a written date; None if times are numbers."""
    return next((one for one in DATE_FORMS if one == form), None)


def seconds_of_days(
    year: NDArray[np.int64], month: NDArray[np.int64], day: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Seconds since 1970 at the beginning of each day, and whether the day exists."""
    known = (year >= 1) & (year <= _LATEST_YEAR) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    months = np.where(known, (year - 1970) * 12 + month - 1, 0)
    days = months.astype("datetime64[M]").astype("datetime64[D]") + np.where(known, day - 1, 0)
    # A day beyond the end of its month falls into the next month.
    exists = known & (days.astype("datetime64[M]").astype(np.int64) == months)
    return days.astype(np.int64) * _SECONDS_PER_DAY, exists


def seconds_of_dates(texts: pl.Series, form: DateForm) -> tuple[pl.Series, pl.Series]:
    """Seconds since 1970 of each text, null if it has another form, and whether it has a time zone."""
    parts = texts.str.extract_groups(_SPELLING[form]).struct.unnest()
    part = {name: parts[name].cast(pl.Int64).fill_null(0).to_numpy() for name in _PARTS}
    days, exists = seconds_of_days(part["year"], part["month"], part["day"])
    half = parts["half"].str.to_lowercase()
    twelve = half.is_not_null().to_numpy()
    hour = np.where(twelve, part["hour"] % 12 + 12 * half.eq_missing("p").to_numpy(), part["hour"])
    exists &= ~twelve | ((part["hour"] >= 1) & (part["hour"] <= 12))
    exists &= (hour < 24) & (part["minute"] < 60) & (part["second"] < 60)
    exists &= (part["ahead"] < 24) & (part["further"] < 60)
    ahead = (part["ahead"] * 60 + part["further"]) * np.where(
        parts["sign"].eq_missing("-").to_numpy(), -60, 60
    )
    seconds = days + hour * 3600 + part["minute"] * 60 + part["second"] - ahead
    texts_read = pl.Series(exists)
    return pl.Series(seconds).set(~texts_read, None).alias(texts.name), parts["zone"].is_not_null()


def date_forms(texts: pl.Series) -> list[DateForm]:
    """The forms in which all texts are dates."""
    return [form for form in DATE_FORMS if not seconds_of_dates(texts, form)[0].has_nulls()]
