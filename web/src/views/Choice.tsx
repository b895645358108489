// A choice among a few options: a native select, which works with keyboard, screen reader and phone.

interface Props<T extends string> {
  label: string;
  value: T;
  options: [value: T, text: string][];
  onChange: (value: T) => void;
}

export function Choice<T extends string>({ label, value, options, onChange }: Props<T>) {
  return (
    <label class="choice">
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value as T)}>
        {options.map(([option, text]) => (
          <option key={option} value={option} selected={option === value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}
